//! What one principal sees of a snapshot. Who is not restricted sees the
//! listings that are there; for others they are filtered once and kept.

use std::{
    collections::HashMap,
    ops::Deref,
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    caller::{Caller, Scope},
    offer::{Kind, Offer},
    view::View,
};
use crate::access::{Grants, Principal};

/// How many filtered listings a snapshot keeps.
const KEPT: usize = 256;

/// A part of the catalog, whole or filtered.
#[derive(Debug)]
pub enum Seen<'a> {
    /// All of it.
    Whole(&'a View),
    /// What the principal is restricted to.
    Part(Arc<View>),
}

/// Filtered listings, made when they are first asked for.
#[derive(Debug, Default)]
pub(super) struct Parts(Mutex<Kept>);

type Kept = HashMap<(Arc<Grants>, Scope), Arc<View>>;

impl Parts {
    pub(super) fn of<'a>(&self, caller: &Caller, whole: &'a View) -> Seen<'a> {
        let Some(grants) = caller.principal.grants() else {
            return Seen::Whole(whole);
        };
        let key = (Arc::clone(grants), caller.scope.clone());
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(part) = kept.get(&key) {
            return Seen::Part(Arc::clone(part));
        }
        let part = Arc::new(filter(whole, &caller.principal, &caller.scope));
        if kept.len() < KEPT {
            kept.insert(key, Arc::clone(&part));
        }
        Seen::Part(part)
    }
}

/// Whether `offer` is `principal`'s to see and to ask for.
pub fn may_use(principal: &Principal, offer: &Offer) -> bool {
    let Some(grants) = principal.grants() else {
        return true;
    };
    match offer.kind {
        Kind::Tool => grants.has_tool(&offer.server, &offer.key, offer.public_key()),
        Kind::Prompt | Kind::Resource | Kind::Template => grants.has_others(&offer.server),
    }
}

fn filter(whole: &View, principal: &Principal, scope: &Scope) -> View {
    let offers: Vec<Arc<Offer>> = whole
        .offers()
        .filter(|it| may_use(principal, it))
        .cloned()
        .collect();
    match scope {
        Scope::All => View::build(&offers, Offer::public_key),
        Scope::Server(_) => View::build(&offers, |offer| &offer.key),
    }
}

impl Deref for Seen<'_> {
    type Target = View;

    fn deref(&self) -> &View {
        match self {
            Self::Whole(view) => view,
            Self::Part(view) => view,
        }
    }
}

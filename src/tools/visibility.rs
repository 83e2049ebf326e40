//! What one principal sees of a snapshot. Who is not restricted sees the
//! listings that are there; for others they are filtered once and kept.

use std::{
    collections::HashMap,
    ops::Deref,
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    caller::{Caller, CatalogScope},
    entry::{CatalogEntry, CatalogEntryKind},
    view::CatalogView,
};
use crate::auth::{Grants, Principal};

/// How many filtered listings a snapshot keeps.
const MAX_FILTERED_VIEWS: usize = 256;

/// A part of the catalog, whole or filtered.
#[derive(Debug)]
pub enum VisibleCatalog<'a> {
    /// All of it.
    All(&'a CatalogView),
    /// What the principal is restricted to.
    Filtered(Arc<CatalogView>),
}

/// Filtered listings, made when they are first asked for.
#[derive(Debug, Default)]
pub(super) struct FilteredViews(Mutex<FilteredViewMap>);

type FilteredViewMap = HashMap<(Arc<Grants>, CatalogScope), Arc<CatalogView>>;

impl FilteredViews {
    pub(super) fn view_for<'a>(
        &self,
        caller: &Caller,
        whole: &'a CatalogView,
    ) -> VisibleCatalog<'a> {
        let Some(grants) = caller.principal.grants() else {
            return VisibleCatalog::All(whole);
        };
        let key = (Arc::clone(grants), caller.scope.clone());
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(part) = kept.get(&key) {
            return VisibleCatalog::Filtered(Arc::clone(part));
        }
        let part = Arc::new(filter_view(whole, &caller.principal, &caller.scope));
        if kept.len() < MAX_FILTERED_VIEWS {
            kept.insert(key, Arc::clone(&part));
        }
        VisibleCatalog::Filtered(part)
    }
}

/// Whether `offer` is `principal`'s to see and to ask for.
pub fn may_use(principal: &Principal, offer: &CatalogEntry) -> bool {
    let Some(grants) = principal.grants() else {
        return true;
    };
    match offer.kind {
        CatalogEntryKind::Tool => {
            grants.allows_tool(&offer.server, &offer.key, offer.public_name())
        }
        CatalogEntryKind::Prompt
        | CatalogEntryKind::Resource
        | CatalogEntryKind::ResourceTemplate => grants.allows_prompts_and_resources(&offer.server),
    }
}

fn filter_view(whole: &CatalogView, principal: &Principal, scope: &CatalogScope) -> CatalogView {
    let offers: Vec<Arc<CatalogEntry>> = whole
        .entries()
        .filter(|it| may_use(principal, it))
        .cloned()
        .collect();
    match scope {
        CatalogScope::All => CatalogView::build(&offers, CatalogEntry::public_name),
        CatalogScope::Server(_) => CatalogView::build(&offers, |offer| &offer.key),
    }
}

impl Deref for VisibleCatalog<'_> {
    type Target = CatalogView;

    fn deref(&self) -> &CatalogView {
        match self {
            Self::All(view) => view,
            Self::Filtered(view) => view,
        }
    }
}

//! The entries of a snapshot that a principal may see. A principal without grants sees all
//! of them; for others the view is filtered once and cached in the snapshot.

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
use maru_auth::{Grants, Principal};

/// How many filtered views a snapshot caches.
const MAX_FILTERED_VIEWS: usize = 256;

/// The view of a caller, whole or filtered.
#[derive(Debug)]
pub enum VisibleCatalog<'a> {
    /// All of it.
    All(&'a CatalogView),
    /// The entries that the principal's grants allow.
    Filtered(Arc<CatalogView>),
}

/// Filtered views, built on first use.
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

/// Whether `principal` may see and use `entry`.
pub fn may_use(principal: &Principal, entry: &CatalogEntry) -> bool {
    let Some(grants) = principal.grants() else {
        return true;
    };
    match entry.kind {
        CatalogEntryKind::Tool => {
            grants.allows_tool(&entry.server, &entry.key, entry.public_name())
        }
        CatalogEntryKind::Prompt
        | CatalogEntryKind::Resource
        | CatalogEntryKind::ResourceTemplate => grants.allows_prompts_and_resources(&entry.server),
    }
}

fn filter_view(whole: &CatalogView, principal: &Principal, scope: &CatalogScope) -> CatalogView {
    let entries: Vec<Arc<CatalogEntry>> = whole
        .entries()
        .filter(|it| may_use(principal, it))
        .cloned()
        .collect();
    match scope {
        CatalogScope::All => CatalogView::build(&entries, CatalogEntry::public_name),
        CatalogScope::Server(_) => CatalogView::build(&entries, |entry| &entry.key),
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

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

/// How many views a snapshot caches.
const MAX_CACHED_VIEWS: usize = 256;

/// The view of a caller.
#[derive(Debug)]
pub enum VisibleCatalog<'a> {
    /// All of a scope.
    All(&'a CatalogView),
    /// What was made for callers like this one.
    Cached(Arc<CatalogView>),
}

/// Which callers share a view.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ViewKey {
    grants: Option<Arc<Grants>>,
    scope: CatalogScope,
    is_search: bool,
}

/// Views, made on first use.
#[derive(Debug, Default)]
pub(super) struct CachedViews(Mutex<HashMap<ViewKey, Arc<CatalogView>>>);

impl ViewKey {
    /// The key of what `caller` may see.
    pub(super) fn visible(caller: &Caller) -> Self {
        Self {
            grants: caller.principal.grants().cloned(),
            scope: caller.scope.clone(),
            is_search: false,
        }
    }

    /// The key of what `caller` lists if it searches.
    pub(super) fn search(caller: &Caller) -> Self {
        Self {
            is_search: true,
            ..Self::visible(caller)
        }
    }
}

impl CachedViews {
    /// The view of this key.
    pub(super) fn get_or_build(
        &self,
        key: ViewKey,
        build: impl FnOnce() -> CatalogView,
    ) -> Arc<CatalogView> {
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(view) = cached.get(&key) {
            return Arc::clone(view);
        }
        let view = Arc::new(build());
        if cached.len() < MAX_CACHED_VIEWS {
            cached.insert(key, Arc::clone(&view));
        }
        view
    }
}

/// Whether the lists of `principal` allow `entry`. Its toolset may forbid it besides.
pub(super) fn may_use(principal: &Principal, entry: &CatalogEntry) -> bool {
    let Some(grants) = principal.grants() else {
        return true;
    };
    match entry.kind {
        CatalogEntryKind::Tool => {
            grants.allows_tool(&entry.server, &entry.key, entry.public_name())
        }
        CatalogEntryKind::Prompt
        | CatalogEntryKind::Resource
        | CatalogEntryKind::ResourceTemplate
        | CatalogEntryKind::Server => grants.allows_prompts_and_resources(&entry.server),
    }
}

impl Deref for VisibleCatalog<'_> {
    type Target = CatalogView;

    fn deref(&self) -> &CatalogView {
        match self {
            Self::All(view) => view,
            Self::Cached(view) => view,
        }
    }
}

//! Cursors of results that have more rows than one answer may hold.
//!
//! No transaction stays open between two pages: a page runs the statement again and leaves
//! out the rows before it. So a cursor is only a number, signed together with the caller,
//! the source and the statement that it belongs to, and it expires.

use std::sync::Arc;

use maru_sources::{QueryLimits, QueryRows};

use crate::request_state::{RequestStateSealer, StateBinding};

/// The furthest row at which a page may begin.
const MAX_OFFSET: usize = 1_000_000;

/// Makes and reads cursors.
#[derive(Clone, Debug, Default)]
pub struct PageCursors(Arc<RequestStateSealer>);

/// The result whose pages a cursor walks through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PagedResult<'a> {
    /// The name of the caller.
    pub(crate) caller: &'a str,
    /// The source, or the custom tool and its version.
    pub(crate) origin: &'a str,
    /// The statement, or the arguments of the tool.
    pub(crate) text: &'a str,
}

impl PageCursors {
    /// Cursors with a key that other hubs have, too.
    pub fn with_key(key: [u8; 32]) -> Self {
        Self(Arc::new(RequestStateSealer::with_key(key, None)))
    }

    /// `limits` for the page at which `cursor` stands, or for the first.
    pub(crate) fn page_limits(
        &self,
        result: PagedResult<'_>,
        cursor: Option<&str>,
        limits: QueryLimits,
    ) -> Result<QueryLimits, String> {
        let Some(cursor) = cursor else {
            return Ok(limits);
        };
        let state = self.0.unseal(&result.binding(), cursor);
        let offset = state.ok().flatten().and_then(|it| it.parse().ok());
        let offset = offset.ok_or(
            "the cursor is expired or belongs to another query; leave it out to begin again",
        )?;
        Ok(QueryLimits { offset, ..limits })
    }

    /// The cursor of the page after `rows`, if there is one.
    pub(crate) fn next_page(
        &self,
        result: PagedResult<'_>,
        limits: QueryLimits,
        rows: &QueryRows,
    ) -> Option<String> {
        let offset = limits.offset + rows.count;
        let has_more = rows.truncated && rows.count > 0 && offset <= MAX_OFFSET;
        has_more.then(|| self.0.seal(&result.binding(), Some(offset.to_string())))
    }
}

impl<'a> PagedResult<'a> {
    fn binding(&self) -> StateBinding<'a> {
        StateBinding {
            principal: self.caller,
            method: "page",
            name: self.origin,
            arguments: self.text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_opens_the_next_page_of_its_own_result_only() {
        let cursors = PageCursors::default();
        let result = PagedResult {
            caller: "a",
            origin: "sales",
            text: "SELECT 1",
        };
        let limits = QueryLimits::default();
        let rows = QueryRows {
            count: 3,
            truncated: true,
            ..QueryRows::default()
        };
        let cursor = cursors.next_page(result, limits, &rows).unwrap();
        let page = cursors.page_limits(result, Some(&cursor), limits).unwrap();
        assert_eq!(page.offset, 3);
        let further = cursors.next_page(result, page, &rows).unwrap();
        let page = cursors.page_limits(result, Some(&further), limits).unwrap();
        assert_eq!(page.offset, 6);
        let others = [
            PagedResult {
                caller: "b",
                ..result
            },
            PagedResult {
                origin: "archive",
                ..result
            },
            PagedResult {
                text: "SELECT 2",
                ..result
            },
        ];
        for other in others {
            cursors
                .page_limits(other, Some(&cursor), limits)
                .unwrap_err();
        }
        cursors.page_limits(result, Some("6"), limits).unwrap_err();
        assert_eq!(
            cursors.next_page(result, limits, &QueryRows::default()),
            None
        );
    }
}

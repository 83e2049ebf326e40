//! What every back end promises; a fresh store for each.

use futures_util::future::join_all;
use maru_store::{
    AuditFilter, AuditRow, AuditedCall, CallFilter, CallUsageFilter, CallUsageRow, Error,
    ModelBudgetRow, ModelUsageFilter, ModelUsageRow, ServerRow, SignInRow, Store, TokenRow,
    UsageBatch, UsageTotals,
};

use super::{TEST_TIME_MS, full_error_text, server_names, server_row};

pub(super) async fn check_store(fresh: impl AsyncFn() -> Store) {
    tokens_are_replaced_by_name(fresh().await).await;
    refused_token_is_not_quoted(fresh().await).await;
    servers_come_back_as_they_went_by_name(fresh().await).await;
    taken_name_or_id_adds_nothing(fresh().await).await;
    one_of_many_at_once_gets_the_name(fresh().await).await;
    change_spares_the_id_and_the_beginning(fresh().await).await;
    deleted_server_is_gone(fresh().await).await;
    every_statement_is_understood(fresh().await).await;
    audit_records_are_found_and_old_ones_go(fresh().await).await;
    usage_is_summed_up_and_no_batch_counts_twice(fresh().await).await;
    budgets_are_replaced_by_name(fresh().await).await;
    every_filter_finds_its_calls_on_every_page(fresh().await).await;
    usage_is_summed_by_name_and_time_and_merged_into_hours(fresh().await).await;
    one_hub_at_a_time_replaces_a_credential(fresh().await).await;
    sign_in_is_taken_once_before_it_expires(fresh().await).await;
}

/// What was written is there for the next process.
pub(super) async fn check_reopened<P: ?Sized>(
    place: &P,
    open: impl AsyncFn(&P) -> Result<Store, Error>,
) {
    let store = open(place).await.unwrap();
    store.insert_server(&server_row("kept")).await.unwrap();
    drop(store);
    let store = open(place).await.unwrap();
    assert_eq!(store.servers().await.unwrap(), [server_row("kept")]);
}

/// Every one of several that start on nothing finds its tables.
pub(super) async fn check_concurrent_open<P: ?Sized>(
    place: &P,
    open: impl AsyncFn(&P) -> Result<Store, Error>,
) {
    let opened = join_all([(); 6].map(|()| open(place))).await;
    for store in opened {
        assert_eq!(server_names(&store.unwrap()).await, [""; 0]);
    }
}

async fn tokens_are_replaced_by_name(store: Store) {
    for (role, byte) in [("reader", 1), ("admin", 2)] {
        store.put_token(&token_row(role, byte)).await.unwrap();
    }
    let [row] = store.tokens().await.unwrap().try_into().unwrap();
    assert_eq!(row.name, "someone");
    assert_eq!(row.role, "admin");
    assert_eq!(row.hash, [2; 32]);
}

async fn refused_token_is_not_quoted(store: Store) {
    let why = full_error_text(store.put_token(&token_row("boss", 1)).await.unwrap_err());
    assert!(why.contains("did not save the token"), "{why}");
    assert!(why.contains("constraint"), "{why}");
    assert!(!why.contains("someone"), "{why}");
    assert_eq!(store.tokens().await.unwrap().len(), 0);
}

async fn servers_come_back_as_they_went_by_name(store: Store) {
    let full = ServerRow {
        description: Some("';-- \"설명\" $1 ?1\n".to_owned()),
        config: "{}".repeat(100_000),
        version: Some("1.2.3".to_owned()),
        auto_connect: true,
        enabled: false,
        origin: "file".to_owned(),
        trust: "pin".to_owned(),
        created_at: -1,
        updated_at: TEST_TIME_MS + 1,
        ..server_row("서버")
    };
    let rows = [server_row("B"), server_row("a"), server_row("b"), full];
    for row in rows.iter().rev() {
        assert!(store.insert_server(row).await.unwrap());
    }
    assert_eq!(store.servers().await.unwrap(), rows);
    assert!(!format!("{rows:?} {store:?}").contains("hush"));
}

async fn taken_name_or_id_adds_nothing(store: Store) {
    let first = server_row("first");
    assert!(store.insert_server(&first).await.unwrap());
    let same_name = ServerRow {
        id: "another".to_owned(),
        ..first.clone()
    };
    let same_id = ServerRow {
        name: "another".to_owned(),
        ..first.clone()
    };
    for taken in [&first, &same_name, &same_id] {
        assert!(!store.insert_server(taken).await.unwrap());
    }
    assert_eq!(store.servers().await.unwrap(), [first]);
}

async fn one_of_many_at_once_gets_the_name(store: Store) {
    let rows: Vec<ServerRow> = (0..20)
        .map(|number| ServerRow {
            id: number.to_string(),
            ..server_row("wanted")
        })
        .collect();
    let added = join_all(rows.iter().map(|row| store.insert_server(row))).await;
    let winners = added.into_iter().filter(|it| *it.as_ref().unwrap());
    assert_eq!(winners.count(), 1);
    assert_eq!(server_names(&store).await, ["wanted"]);
}

async fn change_spares_the_id_and_the_beginning(store: Store) {
    for name in ["one", "two"] {
        store.insert_server(&server_row(name)).await.unwrap();
    }
    let changed = ServerRow {
        description: Some("changed".to_owned()),
        transport_type: "sse".to_owned(),
        config: "[]".to_owned(),
        version: Some("2".to_owned()),
        auto_connect: true,
        enabled: false,
        origin: "file".to_owned(),
        trust: "pin".to_owned(),
        updated_at: TEST_TIME_MS + 1,
        ..server_row("one")
    };
    let asked = ServerRow {
        id: "another".to_owned(),
        created_at: 0,
        ..changed.clone()
    };
    assert!(store.update_server(&asked).await.unwrap());
    assert!(!store.update_server(&server_row("three")).await.unwrap());
    assert_eq!(store.servers().await.unwrap(), [changed, server_row("two")]);
}

async fn deleted_server_is_gone(store: Store) {
    for name in ["one", "two"] {
        store.insert_server(&server_row(name)).await.unwrap();
    }
    for _ in 0..2 {
        store.delete_server("one", TEST_TIME_MS).await.unwrap();
    }
    assert_eq!(store.removed_servers().await.unwrap(), ["one"]);
    assert_eq!(server_names(&store).await, ["two"]);
    store.forget_server("two").await.unwrap();
    assert_eq!(store.removed_servers().await.unwrap(), ["one"]);
    assert_eq!(server_names(&store).await, [""; 0]);
}

async fn every_statement_is_understood(store: Store) {
    let checked = store.check_statements().await;
    assert!(checked.is_ok_and(|count| count > 40));
}

async fn audit_records_are_found_and_old_ones_go(store: Store) {
    let row = |at: i64| AuditRow {
        at,
        principal: format!("p{}", at % 2),
        client: (at == 3).then(|| "client".to_owned()),
        action: "tools/call".to_owned(),
        target: format!("t{at}"),
        outcome: "ok".to_owned(),
        request: format!("r{at}"),
        hub: format!("h{at}"),
        ..AuditRow::default()
    };
    // More than one group, and a rest.
    store.insert_audit_rows((0..120).map(row)).await.unwrap();
    let times = async |filter: AuditFilter| -> Vec<i64> {
        let filter = AuditFilter {
            limit: 200,
            ..filter
        };
        let rows = store.audit_rows(&filter).await.unwrap();
        rows.into_iter().map(|it| it.at).collect()
    };
    let all = times(AuditFilter::default()).await;
    assert_eq!(all, (0..120).rev().collect::<Vec<_>>());
    let newest = AuditFilter {
        limit: 1,
        ..AuditFilter::default()
    };
    let newest = store.audit_rows(&newest).await.unwrap()[0].id;
    let one = |text: &str| Some(text.to_owned());
    let filters = [
        (
            AuditFilter {
                before: Some(newest),
                since: Some(118),
                ..AuditFilter::default()
            },
            vec![118],
        ),
        (
            AuditFilter {
                target: one("t3"),
                ..AuditFilter::default()
            },
            vec![3],
        ),
        (
            AuditFilter {
                request: one("r4"),
                outcome: one("ok"),
                ..AuditFilter::default()
            },
            vec![4],
        ),
        (
            AuditFilter {
                principal: one("p1"),
                since: Some(117),
                ..AuditFilter::default()
            },
            vec![119, 117],
        ),
        (
            AuditFilter {
                action: one("other"),
                ..AuditFilter::default()
            },
            vec![],
        ),
    ];
    for (filter, expected) in filters {
        assert_eq!(times(filter.clone()).await, expected, "{filter:?}");
    }
    let until = AuditFilter {
        since: Some(4),
        until: Some(6),
        ..AuditFilter::default()
    };
    assert_eq!(times(until).await, [5, 4]);
    store.trim_audit(10, 20).await.unwrap();
    assert_eq!(
        times(AuditFilter::default()).await,
        (100..120).rev().collect::<Vec<_>>()
    );
    store.trim_audit(1000, 20).await.unwrap();
    assert_eq!(times(AuditFilter::default()).await, [0; 0]);
    // A failed call, a refused change, and what is no failure.
    let failures = [
        ("failed", Some(true)),
        ("cancelled", Some(false)),
        ("404", None),
        ("201", None),
        ("unknown", None),
        ("failed", None),
        ("cancelled", None),
    ];
    let failures = (200..)
        .zip(failures)
        .map(|(at, (outcome, failed))| AuditRow {
            outcome: outcome.to_owned(),
            call: failed.map(|failed| AuditedCall {
                failed,
                ..AuditedCall::default()
            }),
            ..row(at)
        });
    store
        .insert_audit_rows(failures.collect::<Vec<_>>())
        .await
        .unwrap();
    let failed = AuditFilter {
        failed: true,
        ..AuditFilter::default()
    };
    assert_eq!(times(failed).await, [205, 204, 202, 200]);
}

async fn usage_is_summed_up_and_no_batch_counts_twice(store: Store) {
    let row = |day: i64, caller: &str, tokens: i64| ModelUsageRow {
        day,
        caller: caller.to_owned(),
        model: "m".to_owned(),
        backend: "b".to_owned(),
        totals: UsageTotals {
            requests: 1,
            input_tokens: tokens,
            cost: tokens * 2,
            ..UsageTotals::default()
        },
    };
    let batch = |number: i64, rows: Vec<ModelUsageRow>| UsageBatch {
        writer: "w".to_owned(),
        number,
        at: TEST_TIME_MS,
        rows,
    };
    let first = batch(1, vec![row(2, "b", 5), row(1, "a", 1), row(1, "b", 2)]);
    for again in [&first, &first, &first] {
        store.add_model_usage(again).await.unwrap();
    }
    // Two of one writer at the same time, as after a connection that broke.
    let second = batch(2, vec![row(1, "a", 10)]);
    let written = join_all([&second, &second].map(|it| store.add_model_usage(it))).await;
    assert!(written.iter().all(Result::is_ok), "{written:?}");
    let filter = ModelUsageFilter {
        last_day: 9,
        limit: 100,
        ..ModelUsageFilter::default()
    };
    let sums = async |filter: ModelUsageFilter| -> Vec<(i64, String, i64)> {
        let rows = store.model_usage(&filter).await.unwrap();
        let sum = |it: ModelUsageRow| (it.day, it.caller, it.totals.input_tokens);
        rows.into_iter().map(sum).collect()
    };
    let all = store.model_usage(&filter).await.unwrap();
    assert_eq!(all[0].totals.requests, 4);
    assert_eq!(all[0].totals.cost, 36);
    let by_day = ModelUsageFilter {
        by_day: true,
        by_caller: true,
        ..filter.clone()
    };
    let named = |day: i64, caller: &str, tokens: i64| (day, caller.to_owned(), tokens);
    assert_eq!(
        sums(by_day).await,
        [named(1, "a", 11), named(1, "b", 2), named(2, "b", 5)]
    );
    let one = ModelUsageFilter {
        first_day: 1,
        last_day: 1,
        caller: Some("b".to_owned()),
        ..filter.clone()
    };
    assert_eq!(sums(one).await, [named(0, "", 2)]);
    store.trim_model_usage(2).await.unwrap();
    assert_eq!(sums(filter).await, [named(0, "", 5)]);
}

async fn budgets_are_replaced_by_name(store: Store) {
    let budget = ModelBudgetRow {
        name: "team".to_owned(),
        caller: Some("bot".to_owned()),
        model: None,
        period: "day".to_owned(),
        unit: "tokens".to_owned(),
        maximum: 5,
    };
    store.put_model_budget(&budget).await.unwrap();
    let changed = ModelBudgetRow {
        caller: None,
        model: Some("m".to_owned()),
        period: "month".to_owned(),
        unit: "money".to_owned(),
        maximum: i64::MAX,
        ..budget
    };
    store.put_model_budget(&changed).await.unwrap();
    assert_eq!(store.model_budgets().await.unwrap(), [changed]);
    assert!(store.delete_model_budget("team").await.unwrap());
    assert!(!store.delete_model_budget("team").await.unwrap());
}

fn call_row(number: i64) -> AuditRow {
    let failed = number % 100 == 0;
    AuditRow {
        at: 1_000_000 + number * 1000,
        principal: format!("user{}", number % 7),
        action: "tools/call".to_owned(),
        target: format!("tool_{}", number % 13),
        arguments: format!("{{\"city\":\"도시 {number}\",\"path\":\"/a_b/{number}%\"}}"),
        outcome: if failed { "timed_out" } else { "ok" }.to_owned(),
        took_micros: number,
        call: Some(AuditedCall {
            number,
            server: format!("server{}", number % 3),
            error: failed.then(|| format!("Connection REFUSED to host {number}")),
            failed,
            argument_bytes: 40,
            result_bytes: number,
            server_micros: 1,
        }),
        ..AuditRow::default()
    }
}

/// The numbers of all calls that match, over all pages.
async fn find_calls(store: &Store, mut filter: CallFilter) -> Vec<i64> {
    let mut found = Vec::new();
    loop {
        let page = store.search_calls(&filter).await.unwrap();
        found.extend(
            page.calls
                .into_iter()
                .filter_map(|it| it.call)
                .map(|it| it.number),
        );
        filter.before = page.next_before;
        if filter.before.is_none() {
            return found;
        }
    }
}

async fn every_filter_finds_its_calls_on_every_page(store: Store) {
    let change = AuditRow {
        at: 1_000_000,
        action: "POST /api/mcp/servers".to_owned(),
        ..AuditRow::default()
    };
    let rows = [change].into_iter().chain((1..=10_000).map(call_row));
    store.insert_audit_rows(rows).await.unwrap();
    let all = |wanted: fn(i64) -> bool| -> Vec<i64> {
        (1..=10_000).rev().filter(|it| wanted(*it)).collect()
    };
    let some = |text: &str| Some(text.to_owned());
    let base = CallFilter {
        limit: 90,
        ..CallFilter::default()
    };
    let with = |change: &dyn Fn(&mut CallFilter)| {
        let mut filter = base.clone();
        change(&mut filter);
        filter
    };
    let cases = [
        (base.clone(), all(|_| true)),
        (
            with(&|it| (it.since, it.until) = (Some(1_005_000), Some(1_009_000))),
            vec![8, 7, 6, 5],
        ),
        (with(&|it| it.tool = some("tool_4")), all(|it| it % 13 == 4)),
        (
            with(&|it| (it.server, it.failed) = (some("server2"), true)),
            all(|it| it % 300 == 200),
        ),
        (
            with(&|it| (it.caller, it.server) = (some("user3"), some("server1"))),
            all(|it| it % 7 == 3 && it % 3 == 1),
        ),
        (
            with(&|it| it.outcomes = vec!["timed_out".to_owned(), "failed".to_owned()]),
            all(|it| it % 100 == 0),
        ),
        (
            with(&|it| it.text = some("connection refused to HOST 4200")),
            vec![4200],
        ),
        (with(&|it| it.text = some("도시 77\"")), vec![77]),
        (with(&|it| it.text = some("a_b/9999%")), vec![9999]),
        (with(&|it| it.text = some("a%b")), vec![]),
        (
            with(&|it| it.min_micros = Some(9_998)),
            vec![10_000, 9_999, 9_998],
        ),
    ];
    for (filter, expected) in cases {
        let found = find_calls(&store, filter.clone()).await;
        assert!(found == expected, "{filter:?}: {} found", found.len());
    }
    let found = store.find_call(4200, "").await.unwrap().unwrap();
    assert_eq!((found.id > 0, found.call), (true, call_row(4200).call));
    assert!(store.find_call(20_000, "").await.unwrap().is_none());
    // Hubs number their calls by themselves.
    let elsewhere = AuditRow {
        hub: "other".to_owned(),
        ..call_row(4200)
    };
    store.insert_audit_rows([elsewhere]).await.unwrap();
    let found = store.find_call(4200, "other").await.unwrap().unwrap();
    assert_eq!(found.hub, "other");
    let of_others = async |hub: &str| store.calls_of_other_hubs(hub, -1, 1000).await.unwrap();
    assert_eq!(of_others("").await, [found]);
    assert!(store.find_call(4200, "gone").await.unwrap().is_none());
}

async fn usage_is_summed_by_name_and_time_and_merged_into_hours(store: Store) {
    let usage = |slot: i64, tool: &str, calls: i64| CallUsageRow {
        slot,
        tool: tool.to_owned(),
        server: "s".to_owned(),
        caller: "p".to_owned(),
        bucket: 40,
        calls,
        failures: 1,
        micros: 100 * calls,
    };
    let add = async |rows: Vec<CallUsageRow>| store.insert_calls([], rows).await.unwrap();
    add(vec![
        usage(600, "a", 2),
        usage(605, "a", 3),
        usage(665, "b", 5),
    ])
    .await;
    add(vec![usage(605, "a", 4)]).await;
    let all = CallUsageFilter {
        from: 600,
        ..CallUsageFilter::default()
    };
    let by_slot = async |filter: &CallUsageFilter, span: i64| -> Vec<(i64, i64, i64, i64)> {
        let rows = store.usage_by_slot(filter, span).await.unwrap();
        let figures = rows.iter();
        figures
            .map(|it| (it.slot, it.calls, it.failures, it.micros))
            .collect()
    };
    assert_eq!(
        by_slot(&all, 5).await,
        [(600, 2, 1, 200), (605, 7, 2, 700), (665, 5, 1, 500)]
    );
    assert_eq!(
        by_slot(&all, 60).await,
        [(600, 9, 3, 900), (660, 5, 1, 500)]
    );
    let only_b = CallUsageFilter {
        tool: Some("b".to_owned()),
        ..all.clone()
    };
    assert_eq!(by_slot(&only_b, 60).await, [(660, 5, 1, 500)]);
    let mut by_name = store.usage_by_name(&all).await.unwrap();
    by_name.sort_by(|a, b| a.tool.cmp(&b.tool));
    let figures: Vec<_> = by_name
        .iter()
        .map(|it| (it.tool.as_str(), it.calls))
        .collect();
    assert_eq!(figures, [("a", 9), ("b", 5)]);
    store.trim_usage(660, 600).await.unwrap();
    assert_eq!(by_slot(&all, 5).await, [(600, 9, 3, 900), (665, 5, 1, 500)]);
    store.trim_usage(660, 660).await.unwrap();
    assert_eq!(by_slot(&all, 5).await, [(665, 5, 1, 500)]);
}

fn token_row(role: &str, byte: u8) -> TokenRow {
    TokenRow::new("someone", role, [byte; 32])
}

async fn one_hub_at_a_time_replaces_a_credential(store: Store) {
    let first = store
        .put_credential("id", "", "one")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(first.data, "one");
    let leases: Vec<String> = (0..8).map(|it| format!("hub {it}")).collect();
    let taken = join_all(leases.iter().map(|it| store.lease_credential(&first, it))).await;
    let winners = taken.into_iter().filter(|it| *it.as_ref().unwrap()).count();
    assert_eq!(winners, 1);
    let second = store
        .replace_credential(&first, "two")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (second.version, second.lease.as_str()),
        (first.version + 1, "")
    );
    // Whoever still has the old version changes nothing.
    assert_eq!(
        store.replace_credential(&first, "three").await.unwrap(),
        None
    );
    assert!(!store.lease_credential(&first, "late").await.unwrap());
    let stored = store.credential("id", "").await.unwrap().unwrap();
    assert_eq!(stored, second);
    let third = store
        .put_credential("id", "", "signed in")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(third.version, first.version + 2);
    store.put_credential("id", "someone", "x").await.unwrap();
    assert!(store.delete_credential("id", "").await.unwrap());
    assert_eq!(store.credential("id", "").await.unwrap(), None);
    let versions = store.credential_versions().await.unwrap();
    let key = ("id".to_owned(), "someone".to_owned());
    assert_eq!(versions.keys().collect::<Vec<_>>(), [&key]);
    store.put_credential("id", "other", "x").await.unwrap();
    store.delete_access("other").await.unwrap();
    assert_eq!(store.credential("id", "other").await.unwrap(), None);
    assert!(store.credential("id", "someone").await.unwrap().is_some());
    store.delete_credentials("id").await.unwrap();
    assert_eq!(store.credential("id", "someone").await.unwrap(), None);
}

async fn sign_in_is_taken_once_before_it_expires(store: Store) {
    let put = async |state_hash: &str, expires_at: i64, limit: i64| {
        let row = SignInRow {
            state_hash,
            subject: "kim",
            data: "data",
            expires_at,
        };
        store.put_sign_in(&row, limit).await.unwrap()
    };
    let later = i64::MAX;
    assert!(put("a", later, 2).await);
    assert!(put("old", 1, 2).await);
    assert!(store.has_sign_in("a").await.unwrap());
    assert!(!store.has_sign_in("old").await.unwrap());
    assert_eq!(store.take_sign_in("old").await.unwrap(), None);
    let taken = join_all([(); 4].map(|()| store.take_sign_in("a"))).await;
    let taken: Vec<String> = taken.into_iter().filter_map(Result::unwrap).collect();
    assert_eq!(taken, ["data"]);
    assert!(!store.has_sign_in("a").await.unwrap());
    assert!(put("b", later, 1).await);
    assert!(!put("c", later, 1).await);
    // It ends with the token of its caller.
    store.delete_access("kim").await.unwrap();
    assert_eq!(store.take_sign_in("b").await.unwrap(), None);
}

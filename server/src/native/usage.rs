//! What was used, and what it cost: sums by groups, and what a turn used.

pub(crate) mod reprice;
pub(crate) mod rows;
mod sealed;

use axum::Json;
use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use playhouse_protocol::attribution::MOST_LABELS;
use playhouse_protocol::ledger::{GroupBy, Grouping, TreeUsage, UsageKey, UsageLine, UsageQuery};
use playhouse_protocol::{Cost, Day, MessageId, SessionId, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::extract::{Ids, Search};
use crate::app::App;
use crate::principal::Principal;
use crate::problem::{Kind, Problem};

/// Groups of a page that names no limit, and the most of any.
const USUAL_PAGE: usize = 1_000;
const LARGEST_PAGE: usize = 10_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UsageSearch {
    from: Option<String>,
    to: Option<String>,
    /// Names of groups, with commas between them.
    by: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Debug, Serialize)]
pub(crate) struct UsageRows {
    rows: Vec<UsageLine>,
    /// Where the next page begins: for `after`.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// `GET /v1/usage`
pub(crate) async fn usage(
    State(app): State<App>,
    principal: Principal,
    Search(search): Search<UsageSearch>,
) -> Result<Json<UsageRows>, Problem> {
    let query = query(search, &principal)?;
    let page = match &principal.roots {
        None => app.engine().usage_by(query).await?,
        Some(_) => {
            app.engine().usage_of(query, |summary| app.reaches(&principal, &summary.workspace)).await?
        }
    };
    let next = page.next.as_ref().map(encoded).transpose()?;
    let mut rows: Vec<UsageLine> = page.groups.into_iter().map(UsageLine::from).collect();
    if !principal.reads_all() {
        rows.iter_mut().for_each(|row| row.provider_says = None);
    }
    Ok(Json(UsageRows { rows, next }))
}

fn query(search: UsageSearch, principal: &Principal) -> Result<UsageQuery, Problem> {
    let UsageSearch { from, to, by, after, limit } = search;
    let names = by.iter().flat_map(|by| by.split(',')).filter(|name| !name.is_empty());
    let by: Vec<Grouping> =
        names.map(|name| name.trim().parse().map_err(invalid)).collect::<Result<_, _>>()?;
    let (by, labels) = Grouping::split(&by);
    if labels.len() > MOST_LABELS {
        return Err(Problem::invalid(format!(
            "`by` names {} labels: name {MOST_LABELS} at most",
            labels.len()
        )));
    }
    // Sums of all that the tenant has would tell of what lies outside of the key's directories.
    if principal.roots.is_some() && !by.contains(&GroupBy::Session) {
        let detail = "this key is limited to directories (--root), and sums of the whole tenant need one that is not: \
                      ask `by=session` for the sessions in these directories";
        return Err(Problem::new(Kind::Forbidden, detail));
    }
    let limit = limit.unwrap_or(USUAL_PAGE);
    if !(1..=LARGEST_PAGE).contains(&limit) {
        return Err(Problem::invalid(format!("`limit` must be from 1 to {LARGEST_PAGE}")));
    }
    let query = UsageQuery {
        tenant: principal.whose().map(str::to_owned),
        from: from.as_deref().map(time).transpose()?,
        to: to.as_deref().map(time).transpose()?,
        by,
        labels,
        after: after.as_deref().map(decoded::<UsageKey>).transpose()?,
        limit,
        session: None,
    };
    query.check().map_err(invalid)?;
    Ok(query)
}

fn invalid(error: impl std::fmt::Display) -> Problem {
    Problem::invalid(error.to_string())
}

/// A day, which stands for its beginning, or milliseconds since 1970.
fn time(text: &str) -> Result<Timestamp, Problem> {
    match text.parse() {
        Ok(millis) => Ok(Timestamp::from_millis(millis)),
        Err(_) => text.parse::<Day>().map(Day::start).map_err(invalid),
    }
}

/// A place as clients have it, who send it back.
fn encoded<P: Serialize>(place: &P) -> Result<String, Problem> {
    let json = serde_json::to_vec(place).map_err(|error| Problem::new(Kind::Internal, error.to_string()))?;
    Ok(URL_SAFE_NO_PAD.encode(json))
}

fn decoded<P: DeserializeOwned>(place: &str) -> Result<P, Problem> {
    let decoded = URL_SAFE_NO_PAD.decode(place).ok();
    decoded
        .and_then(|json| serde_json::from_slice(&json).ok())
        .ok_or_else(|| Problem::invalid("`after` is not what `next` of the page before said"))
}

/// `GET /v1/sessions/{session}/turns/{turn}/usage`
pub(crate) async fn of_turn(
    State(app): State<App>,
    principal: Principal,
    Ids((session, turn)): Ids<(SessionId, MessageId)>,
) -> Result<Json<TreeUsage>, Problem> {
    app.summary(&principal, session).await?;
    Ok(Json(told(app.engine().turn_usage(session, turn).await?, &principal)))
}

/// `GET /v1/sessions/{session}/tree/usage`
pub(crate) async fn of_tree(
    State(app): State<App>,
    principal: Principal,
    Ids(session): Ids<SessionId>,
) -> Result<Json<TreeUsage>, Problem> {
    app.summary(&principal, session).await?;
    Ok(Json(told(app.engine().tree_usage(session).await?, &principal)))
}

/// The usage as `principal` is to read it: what providers take is the operator's.
fn told(mut usage: TreeUsage, principal: &Principal) -> TreeUsage {
    if !principal.reads_all() {
        for sum in [&mut usage.sum, &mut usage.own].into_iter().chain(usage.models.values_mut()) {
            (sum.provider_cost, sum.provider_priced) = (Cost::ZERO, Cost::ZERO);
        }
    }
    usage
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(query_of: &str, is_operator: bool) -> Result<UsageQuery, Problem> {
        let search: UsageSearch = serde_json::from_str(query_of).unwrap();
        let key = (!is_operator).then(|| "k".into());
        let all = is_operator;
        query(search, &Principal { tenant: "acme".into(), key, is_operator, all, ..Principal::local() })
    }

    #[test]
    fn a_tenant_asks_for_itself_and_the_operator_for_all() {
        assert_eq!(ask("{}", false).unwrap().tenant.as_deref(), Some("acme"));
        assert_eq!(ask("{}", true).unwrap().tenant, None);
    }

    #[test]
    fn queries_are_read_and_what_does_not_fit_is_told() {
        let text = r#"{"from": "2026-11-01", "to": "1800000000000", "by": "model,day,model", "limit": 5}"#;
        let asked = ask(text, false).unwrap();
        assert_eq!(asked.from, Some("2026-11-01".parse::<Day>().unwrap().start()));
        assert_eq!(asked.to, Some(Timestamp::from_millis(1_800_000_000_000)));
        assert_eq!((asked.by, asked.limit), (vec![GroupBy::Model, GroupBy::Day], 5));
        let after = UsageKey { model: Some("a/b".into()), ..UsageKey::default() };
        let text = |by: &str| format!(r#"{{"by": "{by}", "after": "{}"}}"#, encoded(&after).unwrap());
        assert_eq!(ask(&text("model"), false).unwrap().after.as_ref(), Some(&after));
        for by in ["", "day", "model,day", "session"] {
            let problem = ask(&text(by), false).unwrap_err();
            assert!(
                problem.kind == Kind::Invalid && problem.detail.contains("other groups"),
                "{by}: {problem}"
            );
        }
        for (text, said) in [
            (r#"{"from": "yesterday"}"#, "is not a day"),
            (r#"{"by": "modle"}"#, "did you mean \"model\""),
            (r#"{"after": "x"}"#, "`after` is not"),
            (r#"{"limit": 0}"#, "`limit` must be from 1 to"),
            (r#"{"from": "2026-11-02", "to": "2026-11-01"}"#, "`from` is after `to`"),
        ] {
            let problem = ask(text, true).unwrap_err();
            assert!(problem.kind == Kind::Invalid && problem.detail.contains(said), "{}", problem.detail);
        }
    }
}

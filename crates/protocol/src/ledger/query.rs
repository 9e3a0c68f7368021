//! What is asked of the ledger: sums by groups, and rows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::AddAssign;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use thiserror::Error;

use super::{Grain, LedgerRow, Purpose, RowId};
use crate::attribution::KeyRef;
use crate::day::Day;
use crate::id::{MessageId, SessionId};
use crate::model::ModelRef;
use crate::nearest::did_you_mean;
use crate::time::Timestamp;
use crate::usage::{Cost, Totals};

/// What sums are told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupBy {
    /// Who pays.
    Tenant,
    /// The session.
    Session,
    /// The model, with its provider.
    Model,
    /// The provider.
    Provider,
    /// The day, in UTC.
    Day,
    /// What it was for.
    Purpose,
    /// The agent.
    Agent,
    /// The key of the prompt that began the turn.
    Key,
}

/// A name of no group.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("usage cannot be summed up by \"{name}\": there are {known}{meant}")]
pub struct GroupByError {
    name: String,
    known: String,
    meant: String,
}

impl GroupBy {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Tenant,
        Self::Session,
        Self::Model,
        Self::Provider,
        Self::Day,
        Self::Purpose,
        Self::Agent,
        Self::Key,
    ];

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Session => "session",
            Self::Model => "model",
            Self::Provider => "provider",
            Self::Day => "day",
            Self::Purpose => "purpose",
            Self::Agent => "agent",
            Self::Key => "key",
        }
    }
}

impl fmt::Display for GroupBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for GroupBy {
    type Err = GroupByError;

    fn from_str(text: &str) -> Result<Self, GroupByError> {
        Self::ALL.into_iter().find(|known| known.name() == text).ok_or_else(|| {
            let name: String = text.chars().take(64).collect();
            let names = Self::ALL.map(Self::name);
            let meant = did_you_mean(&name, names);
            GroupByError {
                name: name.escape_debug().to_string(),
                known: names.join(", ") + ", label:NAME",
                meant,
            }
        })
    }
}

/// What sums are told apart by: a [`GroupBy`], or a label, which is written `label:NAME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grouping {
    /// What every row has.
    By(GroupBy),
    /// A label, by its name.
    Label(String),
}

impl Grouping {
    /// The groups and the labels among these, each once.
    pub fn split(all: &[Self]) -> (Vec<GroupBy>, Vec<String>) {
        let (mut groups, mut labels) = (BTreeSet::new(), BTreeSet::new());
        for one in all {
            match one {
                Self::By(group) => drop(groups.insert(*group)),
                Self::Label(name) => drop(labels.insert(name.clone())),
            }
        }
        (groups.into_iter().collect(), labels.into_iter().collect())
    }
}

impl fmt::Display for Grouping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::By(group) => group.fmt(f),
            Self::Label(name) => write!(f, "{LABEL}{name}"),
        }
    }
}

impl FromStr for Grouping {
    type Err = GroupByError;

    fn from_str(text: &str) -> Result<Self, GroupByError> {
        match text.strip_prefix(LABEL).filter(|name| !name.is_empty()) {
            Some(name) => Ok(Self::Label(name.to_owned())),
            None => text.parse().map(Self::By),
        }
    }
}

/// Which sums are wanted. By session they come in pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageQuery {
    /// Only this tenant's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Only this session's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Only what ended at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// Only what ended before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Timestamp>,
    /// What sums are told apart by; nothing for one sum over all.
    pub by: Vec<GroupBy>,
    /// Names of labels that sums are told apart by as well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Where the page before ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<UsageKey>,
    /// At most so many groups; 0 stands for the usual page.
    pub limit: usize,
}

/// What a group has in common. Only what the query tells apart is there; with a session also its tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageKey {
    /// Who pays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The day, in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day: Option<Day>,
    /// The provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The model, as `provider/model`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What it was for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purpose: Option<Purpose>,
    /// The agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The key of the prompt that began the turn; `Some(None)` where the operator sent it.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "there")]
    pub key: Option<Option<KeyRef>>,
    /// Labels, as `label:NAME`; `None` where a row has no such label.
    #[serde(flatten, deserialize_with = "labelled")]
    pub labels: BTreeMap<String, Option<String>>,
}

/// What a group by a label is called before the label's name.
const LABEL: &str = "label:";

/// A value that is there, `null` included.
fn there<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<KeyRef>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// The labels among all fields that are left.
fn labelled<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, Option<String>>, D::Error> {
    let fields = BTreeMap::<String, Value>::deserialize(from)?;
    let labels = fields.into_iter().filter(|(name, _)| name.starts_with(LABEL));
    Ok(labels.map(|(name, label)| (name, label.as_str().map(str::to_owned))).collect())
}

/// Why a query is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum QueryError {
    /// Nothing can be within it.
    #[error("`from` is after `to`, so that nothing can be in between: swap them, or leave one out")]
    Backwards,
    /// A page of other groups said so.
    #[error(
        "`after` is of a page that was told apart by other groups: send it with the `by` of that page, or leave it out"
    )]
    OtherGroups,
}

fn check_range(from: Option<Timestamp>, to: Option<Timestamp>) -> Result<(), QueryError> {
    match (from, to) {
        (Some(from), Some(to)) if from > to => Err(QueryError::Backwards),
        _ => Ok(()),
    }
}

impl UsageQuery {
    /// Whether it can be answered.
    ///
    /// # Errors
    /// It ends before it begins, or goes on from a page of other groups.
    pub fn check(&self) -> Result<(), QueryError> {
        check_range(self.from, self.to)?;
        match &self.after {
            Some(after) if !after.is_of(&self.by, &self.labels) => Err(QueryError::OtherGroups),
            _ => Ok(()),
        }
    }
}

impl UsageKey {
    /// Whether it can be that of a group of a page after which another comes, told apart by these.
    fn is_of(&self, by: &[GroupBy], labels: &[String]) -> bool {
        let has = |group: GroupBy| match group {
            GroupBy::Tenant => self.tenant.is_some(),
            GroupBy::Session => self.session.is_some(),
            GroupBy::Model => self.model.is_some(),
            GroupBy::Provider => self.provider.is_some(),
            GroupBy::Day => self.day.is_some(),
            GroupBy::Purpose => self.purpose.is_some(),
            GroupBy::Agent => self.agent.is_some(),
            GroupBy::Key => self.key.is_some(),
        };
        let with_tenant = by.contains(&GroupBy::Session);
        let wanted = |group| by.contains(&group) || (group == GroupBy::Tenant && with_tenant);
        // One sum over all has no page behind it.
        let names: BTreeSet<String> = labels.iter().map(|name| [LABEL, name].concat()).collect();
        let is_told_apart = !by.is_empty() || !labels.is_empty();
        is_told_apart
            && self.labels.keys().eq(&names)
            && GroupBy::ALL.into_iter().all(|group| has(group) == wanted(group))
    }

    /// The group of what has this grain, and belongs to this session where that is known.
    pub fn new(by: &[GroupBy], labels: &[String], grain: &Grain, session: Option<SessionId>) -> Self {
        let attribution = grain.attribution.as_deref();
        let label = |name: &String| attribution.and_then(|attribution| attribution.labels.get(name).cloned());
        let labels = labels.iter().map(|name| ([LABEL, name].concat(), label(name))).collect();
        let mut key = Self { labels, ..Self::default() };
        for group in by {
            match group {
                GroupBy::Tenant => key.tenant = Some(grain.tenant.clone()),
                GroupBy::Session => {
                    key.tenant = Some(grain.tenant.clone());
                    key.session = session;
                }
                GroupBy::Model => key.model = Some(format!("{}/{}", grain.provider, grain.model)),
                GroupBy::Provider => key.provider = Some(grain.provider.clone()),
                GroupBy::Day => key.day = Some(Day(grain.day)),
                GroupBy::Purpose => key.purpose = Some(grain.purpose),
                GroupBy::Agent => key.agent = Some(grain.agent.clone()),
                GroupBy::Key => {
                    key.key = Some(attribution.and_then(|attribution| attribution.key.clone()));
                }
            }
        }
        key
    }
}

/// A sum over rows. It is `u64::MAX` where it would be more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageSum {
    /// Tokens, money and numbers of attempts.
    #[serde(flatten)]
    pub totals: Totals,
    /// Attempts whose counts do not match the provider's own total.
    pub unreconciled: u64,
    /// Attempts for which a price or a factor was assumed.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub assumed: u64,
    /// What providers say that their answers cost, where they say so.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub provider_cost: Cost,
    /// The part of the cost that is of the same attempts.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub provider_priced: Cost,
}

impl AddAssign for UsageSum {
    fn add_assign(&mut self, other: Self) {
        self.totals += other.totals;
        self.unreconciled = self.unreconciled.saturating_add(other.unreconciled);
        self.assumed = self.assumed.saturating_add(other.assumed);
        self.provider_cost += other.provider_cost;
        self.provider_priced += other.provider_priced;
    }
}

/// The sum of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UsageGroup {
    /// What it has in common.
    pub key: UsageKey,
    /// The sum.
    pub sum: UsageSum,
}

/// Sums, in the order of their keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UsagePage {
    /// The groups with rows.
    pub groups: Vec<UsageGroup>,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<UsageKey>,
}

/// What providers say that answers cost, beside what they cost here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderSum {
    /// As the provider says, in US dollars.
    pub cost: Cost,
    /// What the same rows cost here less than that.
    pub difference: Cost,
}

/// A group as the API and the command line show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsageLine {
    /// What it has in common.
    #[serde(flatten)]
    pub key: UsageKey,
    /// Tokens of uncached input.
    pub input: u64,
    /// Tokens of input read from a cache.
    pub cache_read: u64,
    /// Tokens of input written to a cache.
    pub cache_write: u64,
    /// Tokens of output.
    pub output: u64,
    /// Tokens of reasoning.
    pub reasoning: u64,
    /// US dollars, of the rows whose cost is known: exact, without zeros at the end.
    pub cost: Cost,
    /// Attempts.
    pub rows: u64,
    /// Attempts whose usage is an estimate.
    pub estimated_rows: u64,
    /// Attempts whose cost is not known.
    pub unpriced_rows: u64,
    /// Attempts whose counts cannot be relied on: they do not match each other, or hold some that are not known.
    pub unreconciled_rows: u64,
    /// Attempts for which a price or a factor was assumed.
    #[serde(default)]
    pub assumed_rows: u64,
    /// What the provider says, where it says anything. The operator's only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_says: Option<ProviderSum>,
}

impl From<UsageGroup> for UsageLine {
    fn from(UsageGroup { key, sum }: UsageGroup) -> Self {
        let totals = sum.totals;
        let tokens = totals.tokens;
        Self {
            key,
            input: tokens.input,
            cache_read: tokens.cache_read,
            cache_write: tokens.cache_writes(),
            output: tokens.output,
            reasoning: tokens.reasoning,
            cost: totals.cost.normalized(),
            rows: totals.attempts,
            estimated_rows: totals.estimated,
            unpriced_rows: totals.unpriced,
            unreconciled_rows: sum.unreconciled,
            assumed_rows: sum.assumed,
            provider_says: (sum.provider_cost != Cost::ZERO).then(|| ProviderSum {
                cost: sum.provider_cost.normalized(),
                difference: Cost(sum.provider_cost.0.saturating_sub(sum.provider_priced.0)).normalized(),
            }),
        }
    }
}

/// What a turn, or a session with all below it, used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TreeUsage {
    /// All of it.
    pub sum: UsageSum,
    /// What it used itself, without its sub-sessions.
    pub own: UsageSum,
    /// All of it by model.
    pub models: BTreeMap<String, UsageSum>,
    /// How many sub-sessions used something of it.
    pub sub_sessions: u64,
    /// Rows that ended before this time were written away, and some of them may belong to it: of what its sub-sessions used
    /// before, nothing is in these sums. What it used itself is there in full. Absent where nothing can be missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived_before: Option<Timestamp>,
}

/// Which rows are wanted: by tenant and time; those of one session or tree by time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RowQuery {
    /// Only this tenant's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Only those of this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Only those of the sessions of this tree, named by its root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<SessionId>,
    /// Only those of this turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<MessageId>,
    /// Only those that ended at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// Only those that ended before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Timestamp>,
    /// Only those of this provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Only those of this model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// Only those with a label of this name that says this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<(String, String)>,
    /// Only those of prompts that came with the key of this id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Where the page before ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<RowPlace>,
    /// At most so many; 0 stands for the usual page.
    pub limit: usize,
}

impl RowQuery {
    /// Whether it can be answered.
    ///
    /// # Errors
    /// It ends before it begins.
    pub fn check(&self) -> Result<(), QueryError> {
        check_range(self.from, self.to)
    }

    /// Whether a row is one of these, wherever the page before ended and whenever it ended.
    pub fn wants(&self, row: &LedgerRow) -> bool {
        self.tenant.as_ref().is_none_or(|tenant| *tenant == row.tenant)
            && self.session.is_none_or(|session| session == row.session)
            && self.root.is_none_or(|root| root == row.root)
            && self.turn.is_none_or(|turn| turn == row.turn)
            && self.provider.as_ref().is_none_or(|provider| *provider == row.provider)
            && self
                .model
                .as_ref()
                .is_none_or(|model| model.provider == row.provider && model.model == row.model)
            && self.label.as_ref().is_none_or(|(name, label)| row.labels.get(name) == Some(label))
            && self.key.as_ref().is_none_or(|key| row.key.as_ref().is_some_and(|of| of.id == *key))
    }
}

/// The place of a row in the ledger.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RowPlace {
    /// Who pays.
    pub tenant: String,
    /// When the attempt ended.
    pub ended: Timestamp,
    /// The row.
    pub id: RowId,
}

impl LedgerRow {
    /// Its place in the ledger.
    pub fn place(&self) -> RowPlace {
        RowPlace { tenant: self.tenant.clone(), ended: self.ended, id: self.id.clone() }
    }
}

/// A page of rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RowPage {
    /// In the order of their places; fewer than wanted where many others had to be read for them.
    pub rows: Vec<LedgerRow>,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<RowPlace>,
}

/// Which entries may be written away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveQuery {
    /// Only what ended before this time.
    pub before: Timestamp,
    /// Only entries of the feed up to this number: what every sink has. Absent where there are no sinks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_to: Option<u64>,
    /// The number of the last entry of the page before; 0 for the first page.
    pub after: u64,
    /// At most so many entries; 0 stands for the usual page.
    pub limit: usize,
}

/// Entries that may be written away, in the order of the feed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ArchivePage {
    /// Their numbers.
    pub numbers: Vec<u64>,
    /// The rows among them.
    pub rows: Vec<LedgerRow>,
    /// Rows on the way that are old enough, but that a sink still needs.
    pub kept: u64,
    /// The corrections among these.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub kept_corrections: u64,
    /// The sinks that are furthest behind, where rows are kept for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<String>,
    /// The number after which the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// The time before which rows were written away so far; absent where none were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived_before: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribution::Attribution;

    #[test]
    fn groups_are_known_by_name() {
        for group in GroupBy::ALL {
            assert_eq!(group.name().parse(), Ok(group));
            assert_eq!(serde_json::to_value(group).unwrap(), group.name());
        }
        let error = "modl".parse::<GroupBy>().unwrap_err().to_string();
        assert!(error.contains("tenant, session") && error.contains("did you mean \"model\""), "{error}");
    }

    #[test]
    fn a_place_fits_the_groups_that_it_is_of() {
        let mut ids = crate::IdGenerator::new(|bytes| bytes.fill(3));
        let grain = Grain {
            tenant: "acme".into(),
            day: 7,
            provider: "p".into(),
            model: "m".into(),
            purpose: Purpose::Turn,
            agent: "build".into(),
            attribution: None,
        };
        let session = Some(ids.next(Timestamp::from_millis(1)));
        let groupings = [
            vec![GroupBy::Tenant],
            vec![GroupBy::Session],
            vec![GroupBy::Model, GroupBy::Day],
            vec![GroupBy::Model],
            vec![GroupBy::Provider],
            vec![GroupBy::Purpose, GroupBy::Agent],
            vec![],
        ];
        for by in &groupings {
            for of in &groupings {
                let after = Some(UsageKey::new(of, &[], &grain, session));
                let query = UsageQuery { by: by.clone(), after, ..UsageQuery::default() };
                let fits = if by == of && !by.is_empty() { Ok(()) } else { Err(QueryError::OtherGroups) };
                assert_eq!(query.check(), fits, "{of:?} for {by:?}");
            }
        }
        let labels = vec!["customer".to_owned(), "absent".to_owned()];
        let attribution = Attribution {
            labels: [("customer".to_owned(), "c-42".to_owned())].into(),
            key: Some(KeyRef { id: "key_1".to_owned(), name: "ci".to_owned() }),
        };
        let labelled = Grain { attribution: attribution.boxed(), ..grain.clone() };
        let by = vec![GroupBy::Key];
        for grain in [&grain, &labelled] {
            let after = UsageKey::new(&by, &labels, grain, session);
            let written = serde_json::to_value(&after).unwrap();
            assert!(written["label:absent"].is_null() && written.get("label:absent").is_some());
            assert_eq!(serde_json::from_value::<UsageKey>(written).unwrap(), after);
            let line = UsageLine::from(UsageGroup { key: after.clone(), sum: UsageSum::default() });
            let written = serde_json::to_value(&line).unwrap();
            assert_eq!(serde_json::from_value::<UsageLine>(written).unwrap(), line);
            let query = UsageQuery {
                by: by.clone(),
                labels: labels.clone(),
                after: Some(after),
                ..UsageQuery::default()
            };
            assert_eq!(query.check(), Ok(()));
            assert!(UsageQuery { labels: Vec::new(), ..query.clone() }.check().is_err());
            assert!(UsageQuery { by: Vec::new(), ..query }.check().is_err());
        }
        let both = UsageKey::new(&[GroupBy::Tenant, GroupBy::Session], &[], &grain, session);
        let by = vec![GroupBy::Session];
        assert_eq!(UsageQuery { by, after: Some(both), ..UsageQuery::default() }.check(), Ok(()));
    }

    #[test]
    fn a_range_does_not_end_before_it_begins() {
        let at = |millis| Some(Timestamp::from_millis(millis));
        for (from, to, fits) in [
            (at(5), at(4), false),
            (at(5), at(5), true),
            (at(4), at(5), true),
            (at(5), None, true),
            (None, at(5), true),
        ] {
            assert_eq!(UsageQuery { from, to, ..UsageQuery::default() }.check().is_ok(), fits);
            assert_eq!(RowQuery { from, to, ..RowQuery::default() }.check().is_ok(), fits);
        }
    }

    #[test]
    fn sums_do_not_overflow() {
        let most = UsageSum {
            totals: Totals {
                tokens: crate::Tokens { input: u64::MAX, output: u64::MAX, ..crate::Tokens::default() },
                cost: crate::Cost(rust_decimal::Decimal::MAX),
                attempts: u64::MAX,
                estimated: u64::MAX,
                unpriced: u64::MAX,
            },
            unreconciled: u64::MAX,
            assumed: u64::MAX,
            provider_cost: crate::Cost(rust_decimal::Decimal::MAX),
            provider_priced: crate::Cost(rust_decimal::Decimal::MAX),
        };
        let mut sum = most;
        sum += most;
        assert_eq!(sum, most);
        assert_eq!(sum.totals.tokens.total(), u64::MAX);
        assert_eq!(serde_json::from_value::<UsageSum>(serde_json::to_value(sum).unwrap()).unwrap(), sum);
    }
}

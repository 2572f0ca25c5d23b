//! `store policy`: what the store keeps, and how much its namespaces may take; the same for every host.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use store::{Error, RefName, Result, Store};
use store::{Extra, Pattern, Policy, Rules, Scope};

use crate::config::{self, Keep, Limit};
use crate::context::Context;
use crate::host::files;
use crate::ui::human;

/// Show or change what the store keeps, and how much its namespaces may take
///
/// The policy is kept in the store, so every `store gc`, put, push and pull from any host follows the same one. The
/// configuration of a host counts only if the store has no policy. If several patterns match a ref, the first one
/// decides which versions are kept, and the first one with a quota decides how much the namespace may take. The policy
/// is shown in the form that `store policy set` reads.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(clap::Subcommand)]
enum Verb {
    Keep(Box<KeepArgs>),
    /// Remove the rules and the quota of a pattern
    Rm {
        /// The pattern as it is shown, like 'project/*'
        refs: String,
    },
    /// Limit the stored bytes of all versions together
    MaxSize {
        /// A size like 10TB, or `none`
        #[arg(value_parser = size_or_none)]
        size: MaxSize,
    },
    /// Replace the whole policy by a file
    Set {
        /// The file, in the form that `store policy` shows; `-` for standard input
        file: PathBuf,
    },
    /// Remove the whole policy: each host follows its own configuration again
    Clear,
}

/// Keep versions of the refs that a pattern matches, or limit their namespaces
#[derive(clap::Args)]
struct KeepArgs {
    /// Which refs, like 'project/*'; rules for the same pattern are replaced
    refs: String,

    /// The newest N versions of each ref
    #[arg(long, value_name = "N", value_parser = human::parse_versions)]
    last: Option<usize>,

    /// Versions younger than this, like 30d
    #[arg(long, value_name = "TIME", value_parser = human::parse_life)]
    within: Option<Duration>,

    /// The newest version of each of the last N days that have one
    #[arg(long, value_name = "N", value_parser = human::parse_versions)]
    daily: Option<usize>,

    /// The newest version of each of the last N weeks that have one
    #[arg(long, value_name = "N", value_parser = human::parse_versions)]
    weekly: Option<usize>,

    /// The newest version of each of the last N months that have one
    #[arg(long, value_name = "N", value_parser = human::parse_versions)]
    monthly: Option<usize>,

    /// How many stored bytes each namespace may take, like 5TB
    #[arg(long, value_name = "SIZE", value_parser = human::parse_limit)]
    quota: Option<u64>,

    /// Put this pattern before all others, so that it decides if several match
    #[arg(long)]
    first: bool,
}

#[derive(Clone, Copy)]
struct MaxSize(Option<u64>);

/// A policy as people write it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Text {
    max_size: Option<Limit>,
    #[serde(default)]
    keep: Vec<Keep>,
}

/// The JSON form of the report.
#[derive(Serialize)]
struct Report {
    policy: Policy,
    /// The policy before the change, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<Policy>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let store = context.open()?;
    let Some(verb) = &args.verb else {
        let policy = store.state()?.policy;
        return context.out.report(&Report {
            policy,
            before: None,
        });
    };
    let change = change(verb)?;
    let (before, policy) = store::policy::set(&store, |policy| change(policy.clone()))?;
    note_what_never_decides(&policy, context);
    note_what_matches_nothing(&policy, &store, context)?;
    context.out.report(&Report {
        policy,
        before: Some(before),
    })
}

type Change = Box<dyn Fn(Policy) -> Result<Policy>>;

fn change(verb: &Verb) -> Result<Change> {
    Ok(match verb {
        Verb::Keep(args) => {
            let (scope, first) = (scope(args)?, args.first);
            Box::new(move |policy| Ok(keep(policy, scope.clone(), first)))
        }
        Verb::Rm { refs } => {
            let pattern = Pattern::new(refs.clone());
            Box::new(move |policy| forget(policy, &pattern))
        }
        Verb::MaxSize { size } => {
            let bytes_max = size.0;
            Box::new(move |policy| {
                Ok(Policy {
                    bytes_max,
                    ..policy
                })
            })
        }
        Verb::Set { file } => {
            let policy = read(file)?;
            Box::new(move |_| Ok(policy.clone()))
        }
        Verb::Clear => Box::new(|_| Ok(Policy::default())),
    })
}

fn scope(args: &KeepArgs) -> Result<Scope> {
    let rules = Rules {
        keep_last: args.last,
        keep_within_secs: args.within.map(|time| time.as_secs()),
        keep_daily: args.daily,
        keep_weekly: args.weekly,
        keep_monthly: args.monthly,
    };
    if rules.is_empty() && args.quota.is_none() {
        return Err(
            Error::invalid(format!("{}: nothing is said of these refs", args.refs)).hint(
                "name a rule like --last 3 or a --quota; `store policy rm` forgets a pattern",
            ),
        );
    }
    Ok(Scope {
        pattern: Pattern::new(args.refs.clone()),
        rules,
        quota_bytes: args.quota,
        extra: Extra::new(),
    })
}

/// Replaces the scope with the same pattern in place, else adds one.
fn keep(mut policy: Policy, scope: Scope, first: bool) -> Policy {
    let known = policy
        .keep
        .iter_mut()
        .find(|known| known.pattern == scope.pattern);
    match known {
        Some(known) if !first => *known = scope,
        _ => {
            policy.keep.retain(|known| known.pattern != scope.pattern);
            let at = if first { 0 } else { policy.keep.len() };
            policy.keep.insert(at, scope);
        }
    }
    policy
}

fn forget(mut policy: Policy, pattern: &Pattern) -> Result<Policy> {
    let before = policy.keep.len();
    policy.keep.retain(|scope| scope.pattern != *pattern);
    if policy.keep.len() == before {
        return Err(Error::not_found(format!(
            "{}: the policy of the store has no such pattern",
            pattern.as_str()
        ))
        .hint("`store policy` shows those that there are"));
    }
    Ok(policy)
}

fn read(file: &Path) -> Result<Policy> {
    let mut text = String::new();
    let read = match file == Path::new("-") {
        true => std::io::stdin().read_to_string(&mut text).map(drop),
        false => std::fs::read_to_string(file).map(|read| text = read),
    };
    read.map_err(|error| files::unread("read the policy", file, error))?;
    let what = format!("policy {}", file.display());
    let text: Text = toml::from_str(&text)
        .map_err(|error| Error::invalid(what.clone()).because(config::mistake(&text, &error)))?;
    if text.keep.is_empty() && text.max_size.is_none() {
        // As from a command that failed before a pipe: it would remove all rules and quotas.
        return Err(Error::invalid(format!("{what}: says nothing"))
            .hint("`store policy clear` removes the policy"));
    }
    Ok(Policy {
        keep: text.keep.iter().map(Scope::from).collect(),
        bytes_max: text.max_size.map(|size| size.0),
        extra: Extra::new(),
    })
}

fn size_or_none(text: &str) -> Result<MaxSize, String> {
    match text {
        "none" => Ok(MaxSize(None)),
        _ => human::parse_limit(text).map(|size| MaxSize(Some(size))),
    }
}

/// Notes rules that never apply, because an earlier pattern matches all of their refs.
fn note_what_never_decides(policy: &Policy, context: &Context) {
    for (at, scope) in policy.keep.iter().enumerate() {
        let mut before = policy.keep.iter().take(at);
        let Some(covering) = before.find(|before| before.pattern.covers(&scope.pattern)) else {
            continue;
        };
        if !scope.rules.is_empty() {
            context.out.note(format_args!(
                "note: {:?} comes before {:?} and decides for all of its refs; --first puts one in front",
                covering.pattern.as_str(),
                scope.pattern.as_str()
            ));
        }
    }
}

/// Notes patterns that match no ref. A rule may exist before its refs, so this is no error.
fn note_what_matches_nothing(policy: &Policy, store: &Store, context: &Context) -> Result<()> {
    if policy.keep.is_empty() {
        return Ok(());
    }
    let heads = store.state()?;
    let heads = heads.refs.heads(None).map(|found| Ok(found?.0));
    let names = heads.collect::<Result<Vec<RefName>>>()?;
    for scope in &policy.keep {
        if !names.iter().any(|name| scope.pattern.matches(name)) {
            let pattern = scope.pattern.as_str();
            context
                .out
                .note(format_args!("note: {pattern:?} matches no ref yet"));
        }
    }
    Ok(())
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.before.as_ref() == Some(&self.policy) {
            writeln!(out, "# nothing changed")?;
        }
        if self.policy.is_empty() {
            return write!(out, "# no policy: each host goes by its own configuration");
        }
        let mut lines = Vec::new();
        if let Some(bytes) = self.policy.bytes_max {
            lines.push(format!("max-size = {:?}", exact_size(bytes)));
        }
        for scope in &self.policy.keep {
            lines.extend(lines_of(scope));
        }
        write!(out, "{}", lines.join("\n"))
    }
}

/// The lines of one `[[keep]]` table.
fn lines_of(scope: &Scope) -> Vec<String> {
    let rules = &scope.rules;
    let number = |name: &str, value: Option<usize>| value.map(|value| format!("{name} = {value}"));
    let within = rules
        .keep_within_secs
        .map(|secs| format!("within = {:?}", exact_span(secs)));
    let quota = scope
        .quota_bytes
        .map(|bytes| format!("quota = {:?}", exact_size(bytes)));
    [
        Some("[[keep]]".to_owned()),
        Some(format!("refs = {:?}", scope.pattern.as_str())),
        number("last", rules.keep_last),
        within,
        number("daily", rules.keep_daily),
        number("weekly", rules.keep_weekly),
        number("monthly", rules.keep_monthly),
        quota,
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A size that parses back to the same number of bytes.
fn exact_size(bytes: u64) -> String {
    exact(
        bytes,
        &[
            (1_000_000_000_000, "TB"),
            (1_000_000_000, "GB"),
            (1_000_000, "MB"),
            (1000, "kB"),
        ],
        "",
    )
}

/// A time that parses back to the same number of seconds.
fn exact_span(secs: u64) -> String {
    exact(secs, &[(86_400, "d"), (3600, "h"), (60, "m")], "s")
}

fn exact(number: u64, units: &[(u64, &str)], one: &str) -> String {
    let fits = |(factor, _): &&(u64, &str)| number > 0 && number.is_multiple_of(*factor);
    match units.iter().find(fits) {
        Some((factor, unit)) => format!("{}{unit}", number / factor),
        None => format!("{number}{one}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_reads_back_as_it_was() {
        for bytes in [0, 999, 1000, 1_500, 5_000_000_000, u64::MAX] {
            assert_eq!(human::parse_size(&exact_size(bytes)), Ok(bytes));
        }
        for secs in [0, 59, 60, 3600, 86_400, 90_000, 365 * 86_400] {
            let span = human::parse_span(&exact_span(secs)).map(|time| time.as_secs());
            assert_eq!(span, Ok(secs));
        }
    }
}

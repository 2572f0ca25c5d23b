//! `store du`: the space that each namespace takes.

use std::cmp::Reverse;
use std::ffi::OsString;

use store::inspect::{self, Usage};
use store::{Error, Namespace, Reader, Result, State, Target};

use crate::context::Context;
use crate::ui::table::Side;
use crate::ui::{human, names};

/// Show how much each namespace takes, the largest first
///
/// "Stored" is what a namespace takes in the store, as its quota counts it: unique and shared bytes. Unique bytes are
/// those that no other namespace needs; `store gc` gives them back after the namespace is dropped. "Logical" is the
/// size of the newest version of each ref as it comes out. `store summarize NAMESPACE` shows where in a namespace the
/// bytes are.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which namespaces [default: all]
    #[arg(value_name = "NAMESPACE")]
    namespaces: Vec<OsString>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let wanted: Vec<Namespace> = args
        .namespaces
        .iter()
        .map(namespace)
        .collect::<Result<_>>()?;
    let store = context.open()?;
    let reader = Reader::new(&store)?;
    check(&wanted, &reader.view().state)?;
    let mut lines: Vec<Usage> = inspect::usage(&reader)?
        .into_iter()
        .filter(|usage| wanted.is_empty() || wanted.contains(&usage.line.name))
        .collect();
    lines.sort_by_key(|line| Reverse(line.stored_bytes));
    let columns = [
        ("stored", Side::Right),
        ("unique", Side::Right),
        ("shared", Side::Right),
        ("logical", Side::Right),
        ("refs", Side::Right),
        ("versions", Side::Right),
        ("quota", Side::Right),
        ("used", Side::Right),
        ("namespace", Side::Left),
    ];
    context.out.list(&columns, lines.into_iter(), cells)
}

fn namespace(text: &OsString) -> Result<Namespace> {
    match names::target(text)? {
        Target::Namespace(namespace) => Ok(namespace),
        Target::Ref(spec) => Err(Error::invalid(format!(
            "{spec}: expected a namespace, like project/NAME"
        ))
        .hint(format!(
            "`store summarize {}` shows what a ref takes",
            names::quoted(&spec.name)
        ))),
    }
}

/// Checks that all wanted namespaces exist, before the one walk that covers all of them.
fn check(wanted: &[Namespace], state: &State) -> Result<()> {
    let known = state.namespaces();
    let missing = wanted
        .iter()
        .find(|name| known.iter().all(|line| line.name != **name));
    missing.map_or(Ok(()), |name| Err(state.no_namespace(name)))
}

fn cells(usage: &Usage) -> [String; 9] {
    let used = |quota| human::percent(usage.stored_bytes, quota);
    [
        human::bytes(usage.stored_bytes),
        human::bytes(usage.unique.stored_bytes),
        human::bytes(usage.shared.stored_bytes),
        human::bytes(usage.line.kept.bytes),
        human::count(usage.line.refs),
        human::count(usage.line.kept.versions),
        usage.quota_bytes.map(human::bytes).unwrap_or_default(),
        usage.quota_bytes.map(used).unwrap_or_default(),
        usage.line.name.as_str().to_owned(),
    ]
}

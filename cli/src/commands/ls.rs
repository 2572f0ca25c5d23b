//! `store ls`: namespaces, the refs of one, the entries of a ref.

use std::ffi::OsString;

use jiff::Timestamp;
use serde::Serialize;
use store::Reader;
use store::inspect::{self, Entry, ListOptions, Listed, NamespaceLine, RefLine};
use store::{Namespace, RefSpec, State, Target};
use store::{Result, Store};

use crate::context::Context;
use crate::ui::entry::{self, Told};
use crate::ui::table::Side;
use crate::ui::{human, names};

/// List namespaces, the refs of a namespace, or the entries of a ref
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to list; all namespaces, if nothing is named
    #[arg(value_name = "NAMESPACE|REF[@N][:PATH]")]
    target: Option<OsString>,

    /// List what is in directories too
    #[arg(long, short)]
    recursive: bool,

    /// Tell sizes, executable bits and modification times
    #[arg(long, short)]
    long: bool,

    /// Print paths as they are, each followed by a NUL byte
    #[arg(long, short = '0', conflicts_with_all = ["long", "json"])]
    null: bool,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let target = args.target.as_deref().map(names::target).transpose()?;
    let store = context.open()?;
    match target {
        None => namespaces(context, &store.readable_state()?),
        Some(Target::Namespace(namespace)) => refs(context, &store.readable_state()?, &namespace),
        Some(Target::Ref(spec)) => entries(args, context, &store, &spec),
    }
}

/// A namespace; an object of `--json`.
#[derive(Serialize)]
struct NamespaceTold {
    namespace: Namespace,
    refs: u64,
    versions: u64,
    bytes: u64,
}

fn namespaces(context: &Context, state: &State) -> Result<()> {
    let told = |line: NamespaceLine| NamespaceTold {
        namespace: line.name,
        refs: line.refs,
        versions: line.kept.versions,
        bytes: line.kept.bytes,
    };
    let columns = [
        ("refs", Side::Right),
        ("versions", Side::Right),
        ("size", Side::Right),
        ("namespace", Side::Left),
    ];
    let cells = |told: &NamespaceTold| {
        let name = told.namespace.as_str().to_owned();
        [
            human::count(told.refs),
            human::count(told.versions),
            human::bytes(told.bytes),
            name,
        ]
    };
    context
        .out
        .list(&columns, state.namespaces().into_iter().map(told), cells)
}

/// A ref; an object of `--json`.
#[derive(Serialize)]
struct RefTold<'s> {
    #[serde(rename = "ref")]
    name: &'s str,
    newest: u64,
    versions: u64,
    bytes: u64,
    time: Timestamp,
    message: &'s str,
}

impl<'s> From<RefLine<'s>> for RefTold<'s> {
    fn from(line: RefLine<'s>) -> Self {
        Self {
            name: line.name.as_str(),
            newest: line.newest,
            versions: line.kept.versions,
            bytes: line.kept.bytes,
            time: line.version.time,
            message: &line.version.message,
        }
    }
}

fn refs(context: &Context, state: &State, namespace: &Namespace) -> Result<()> {
    let mut lines = state.refs_of(Some(namespace)).map(RefTold::from).peekable();
    if lines.peek().is_none() {
        return Err(state.no_namespace(namespace));
    }
    let columns = [
        ("newest", Side::Right),
        ("versions", Side::Right),
        ("size", Side::Right),
        ("put (UTC)", Side::Left),
        ("ref", Side::Left),
        ("message", Side::Left),
    ];
    let cells = |told: &RefTold<'_>| {
        [
            told.newest.to_string(),
            human::count(told.versions),
            human::bytes(told.bytes),
            human::time(told.time),
            told.name.to_owned(),
            names::shown(told.message.as_bytes()),
        ]
    };
    context.out.list(&columns, lines, cells)
}

/// An entry of a tree; an object of `--json`.
#[derive(Serialize)]
struct EntryTold {
    #[serde(flatten)]
    path: names::Path,
    #[serde(flatten)]
    entry: Told,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<Timestamp>,
}

/// One by one as they come, since a tree may have a million of them.
fn entries(args: &Args, context: &Context, store: &Store, spec: &RefSpec) -> Result<()> {
    let reader = Reader::new(store)?;
    let options = ListOptions {
        recursive: args.recursive,
        times: args.long,
    };
    inspect::ls(&reader, spec, options, &mut |listed| {
        show(args, context, &listed)
    })
}

fn show(args: &Args, context: &Context, listed: &Listed) -> Result<()> {
    if args.null {
        return context.out.bytes(&[listed.path.as_slice(), b"\0"].concat());
    }
    let entry = Entry::from(&listed.node);
    let time = listed.time.and_then(entry::timestamp);
    if context.out.is_json() {
        let (path, entry) = (names::Path::new(&listed.path), Told::from(&entry));
        return context.out.json(&EntryTold { path, entry, time });
    }
    let name = entry::name(&listed.path, &entry);
    if !args.long {
        return context.out.line(name);
    }
    let mark = if matches!(
        entry,
        Entry::File {
            executable: true,
            ..
        }
    ) {
        'x'
    } else {
        '-'
    };
    let time = time.map(human::time).unwrap_or_default();
    context.out.line(format_args!(
        "{mark} {:>8}  {time:19}  {name}",
        entry::size(&entry)
    ))
}

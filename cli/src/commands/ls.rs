//! `store ls`: lists namespaces, the refs of a namespace, or the entries of a ref.

use std::cmp::Reverse;
use std::ffi::OsString;

use clap::ValueEnum;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::Serialize;
use store::Reader;
use store::inspect::{self, Entry, ListOptions, Listed, NamespaceLine, RefLine};
use store::{Error, Result, Store};
use store::{Namespace, Node, RefName, RefSpec, State, Target, Uses, VersionId};

use crate::context::Context;
use crate::ui::entry::{self, ShownEntry};
use crate::ui::table::Side;
use crate::ui::{human, names};

/// List namespaces, the refs of a namespace, or the entries of a ref
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to list; all namespaces, if nothing is named
    #[arg(value_name = "NAMESPACE|REF[@N][:PATH]")]
    target: Option<OsString>,

    /// List the contents of directories too
    #[arg(long, short)]
    recursive: bool,

    /// Show sizes, executable bits and modification times
    #[arg(long, short)]
    long: bool,

    /// Print paths unescaped, each followed by a NUL byte
    #[arg(long, short = '0', conflicts_with_all = ["long", "json"])]
    null: bool,

    /// Sort by size (largest first), by last use (newest first) or by name (from a to z)
    ///
    /// The last use is the last day on which somebody got or materialized a version. If nobody has, it is the day on
    /// which the version was put.
    #[arg(long, value_name = "KEY", value_enum, default_value_t = Sort::Name)]
    sort: Sort,

    /// Reverse the order
    #[arg(long)]
    reverse: bool,
}

#[derive(Clone, Copy, ValueEnum, PartialEq, Eq)]
enum Sort {
    /// By bytes
    Size,
    /// By the last use of namespaces and refs
    LastUse,
    /// By name, or by path
    Name,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let target = args.target.as_deref().map(names::target).transpose()?;
    let store = context.open()?;
    match target {
        None => namespaces(args, context, &store),
        Some(Target::Namespace(namespace)) => refs(args, context, &store, &namespace),
        Some(Target::Ref(spec)) => entries(args, context, &store, &spec),
    }
}

/// A namespace; an object of `--json`.
#[derive(Serialize)]
struct NamespaceTold {
    #[serde(flatten)]
    line: NamespaceLine,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_use: Option<Date>,
    #[serde(skip)]
    last_put: Option<Date>,
}

fn namespaces(args: &Args, context: &Context, store: &Store) -> Result<()> {
    let state = store.readable_state()?;
    let uses = LastUses::read(store)?;
    let told = |line: NamespaceLine| -> Result<NamespaceTold> {
        let (mut last_use, mut last_put) = (None, None);
        // Single refs are read only to find the last days.
        if !uses.is_empty() || args.sort == Sort::LastUse {
            for one in state.refs_of(Some(&line.name)) {
                let one = one?;
                last_use = last_use.max(uses.of(&state, &one.name)?);
                last_put = last_put.max(Some(put(&one)));
            }
        }
        Ok(NamespaceTold {
            last_use,
            last_put,
            line,
        })
    };
    let lines = state.namespaces().into_iter().map(told);
    let mut lines = lines.collect::<Result<Vec<NamespaceTold>>>()?;
    sort(args, &mut lines, |line| {
        (line.line.kept.bytes, line.last_use.max(line.last_put))
    });
    let columns = [
        ("refs", Side::Right),
        ("versions", Side::Right),
        ("size", Side::Right),
        ("last use", Side::Left),
        ("namespace", Side::Left),
    ];
    let cells = |told: &NamespaceTold| {
        let name = told.line.name.as_str().to_owned();
        [
            human::count(told.line.refs),
            human::count(told.line.kept.versions),
            human::bytes(told.line.kept.bytes),
            day(told.last_use),
            name,
        ]
    };
    context.out.list(&columns, lines.into_iter(), cells)
}

/// Sorts lines, which are ordered by name, by size or last use if requested.
fn sort<T>(args: &Args, lines: &mut [T], of: impl Fn(&T) -> (u64, Option<Date>)) {
    match args.sort {
        Sort::Size => lines.sort_by_key(|line| Reverse(of(line).0)),
        Sort::LastUse => lines.sort_by_key(|line| Reverse(of(line).1)),
        Sort::Name => {}
    }
    if args.reverse {
        lines.reverse();
    }
}

/// The last uses of versions.
pub(crate) struct LastUses {
    uses: Uses,
    now: Timestamp,
}

impl LastUses {
    pub(crate) fn read(store: &Store) -> Result<Self> {
        Ok(Self {
            uses: Uses::read(store.remote().as_ref())?,
            now: Timestamp::now(),
        })
    }

    /// The last use of any version of a ref.
    pub(crate) fn of(&self, state: &State, name: &RefName) -> Result<Option<Date>> {
        if self.is_empty() {
            return Ok(None);
        }
        let known = state.refs.get(name)?.unwrap_or_default();
        let last = |number: &u64| self.uses.last(VersionId::of(name, *number), self.now);
        Ok(known.versions.keys().filter_map(last).max())
    }

    fn is_empty(&self) -> bool {
        self.uses.iter().next().is_none()
    }
}

/// The day on which the newest version was put.
fn put(line: &RefLine) -> Date {
    line.version.time.to_zoned(TimeZone::UTC).date()
}

fn day(day: Option<Date>) -> String {
    day.map_or_else(String::new, |day| day.to_string())
}

/// A ref; an object of `--json`.
#[derive(Serialize)]
struct RefTold {
    #[serde(rename = "ref")]
    name: String,
    newest: u64,
    versions: u64,
    bytes: u64,
    time: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_use: Option<Date>,
    #[serde(skip)]
    last_put: Date,
    message: String,
}

impl RefTold {
    fn new(line: RefLine, last_use: Option<Date>) -> Self {
        Self {
            last_put: put(&line),
            last_use,
            name: line.name.to_string(),
            newest: line.newest,
            versions: line.kept.versions,
            bytes: line.kept.bytes,
            time: line.version.time,
            message: line.version.message,
        }
    }
}

fn refs(args: &Args, context: &Context, store: &Store, namespace: &Namespace) -> Result<()> {
    let state = store.readable_state()?;
    let lines = state
        .refs_of(Some(namespace))
        .collect::<Result<Vec<RefLine>>>()?;
    if lines.is_empty() {
        return Err(state.no_namespace(namespace));
    }
    let uses = LastUses::read(store)?;
    let lines = lines.into_iter().map(|line| {
        let last_use = uses.of(&state, &line.name)?;
        Ok(RefTold::new(line, last_use))
    });
    let mut lines = lines.collect::<Result<Vec<RefTold>>>()?;
    sort(args, &mut lines, |line| {
        (line.bytes, line.last_use.max(Some(line.last_put)))
    });
    let columns = [
        ("newest", Side::Right),
        ("versions", Side::Right),
        ("size", Side::Right),
        ("put (UTC)", Side::Left),
        ("last use", Side::Left),
        ("ref", Side::Left),
        ("message", Side::Cut),
    ];
    let cells = |told: &RefTold| {
        [
            told.newest.to_string(),
            human::count(told.versions),
            human::bytes(told.bytes),
            human::time(told.time),
            day(told.last_use),
            told.name.clone(),
            names::shown(told.message.as_bytes()),
        ]
    };
    context.out.list(&columns, lines.into_iter(), cells)
}

/// An entry of a tree; an object of `--json`.
#[derive(Serialize)]
struct EntryTold {
    #[serde(flatten)]
    path: names::Path,
    #[serde(flatten)]
    entry: ShownEntry,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<Timestamp>,
}

/// Prints entries one by one, since a tree may have millions. Sorting by another order needs all of them in memory.
fn entries(args: &Args, context: &Context, store: &Store, spec: &RefSpec) -> Result<()> {
    if args.sort == Sort::LastUse {
        return Err(Error::invalid(
            "--sort last-use: the paths of a ref have no last use of their own",
        )
        .hint("list refs by it: name a namespace, or nothing"));
    }
    let reader = Reader::new(store)?;
    let options = ListOptions {
        recursive: args.recursive,
        times: args.long,
        lost: false,
    };
    if args.sort == Sort::Name && !args.reverse {
        return inspect::ls(&reader, spec, options, &mut |listed| {
            show(args, context, (spec, &listed))
        });
    }
    let mut all = Vec::new();
    inspect::ls(&reader, spec, options, &mut |listed| {
        all.push(listed);
        Ok(())
    })?;
    sort(args, &mut all, |listed| (bytes(&listed.node), None));
    all.iter()
        .try_for_each(|listed| show(args, context, (spec, listed)))
}

/// The size of an entry; for a directory, that of everything below it.
fn bytes(node: &Node) -> u64 {
    match node {
        Node::File { content, .. } => content.size,
        Node::Tree { totals, .. } => totals.bytes,
        Node::Symlink { .. } => 0,
    }
}

/// The name of a single file, whose path in itself is empty.
fn own_name(spec: &RefSpec) -> &[u8] {
    let path = match spec.path.is_empty() {
        true => spec.name.as_str().as_bytes(),
        false => &spec.path,
    };
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

fn show(args: &Args, context: &Context, (spec, listed): (&RefSpec, &Listed)) -> Result<()> {
    let entry = Entry::from(&listed.node);
    let path = match (listed.path.is_empty(), &entry) {
        (true, Entry::File { .. } | Entry::Symlink { .. }) => own_name(spec),
        _ => &listed.path,
    };
    if args.null {
        return context.out.bytes(&[path, b"\0"].concat());
    }
    let time = listed.time.and_then(entry::timestamp);
    if context.out.is_json() {
        let (path, entry) = (names::Path::new(&listed.path), ShownEntry::from(&entry));
        return context.out.json(&EntryTold { path, entry, time });
    }
    let name = entry::name(path, &entry);
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

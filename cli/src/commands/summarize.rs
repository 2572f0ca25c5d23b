//! `store summarize`: how much space a namespace or a ref takes, and which parts of it.

mod csv;
mod truss;

use std::cmp::Reverse;
use std::ffi::OsString;
use std::fmt;

use clap::ValueEnum;
use jiff::Timestamp;
use jiff::civil::Date;
use serde::Serialize;
use store::Reader;
use store::inspect::{self, Deltas, Entry, ListOptions, RefShares, Share, Summary};
use store::{Error, Result};
use store::{Namespace, Node, RefSpec, State, Target, Version};

use crate::commands::ls::LastUses;
use crate::context::Context;
use crate::ui::entry::{self, ShownEntry};
use crate::ui::table::{Side, Table};
use crate::ui::{human, names};

/// Show what a namespace or a ref takes, and where in it
///
/// Logical bytes are the bytes of the files as they come out. Unique bytes are those that nothing else in the store
/// needs: if it is dropped, the next `store gc` gives them back. Shared bytes are those that other refs or versions
/// need as well. Numbers that are similar to those of another model are stored as deltas against them; the base of a
/// delta stays as long as the delta, even if no version has it.
///
/// Below that are the paths of a ref, or the refs of a namespace: for each, what only it needs, with all its versions,
/// and what others need as well, in stored bytes. Each ref is walked by itself for that; if there are very many refs,
/// `store ls NAMESPACE` is quicker.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A namespace, a ref with all its versions, or one version
    #[arg(value_name = "NAMESPACE|REF[@N]")]
    target: OsString,

    /// How many levels of directories to list [default: 1; with --truss all]
    #[arg(long, value_name = "N")]
    depth: Option<u32>,

    /// Sort by size (largest first), modified (newest first) or another key (from a to z) [default: size]
    #[arg(long, value_name = "KEY", value_enum)]
    sort: Option<Sort>,

    /// Sort up or down, whatever the key
    #[arg(long, value_name = "ORDER", value_enum)]
    order: Option<Order>,

    /// The output format; csv and json have bytes as plain numbers
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    output: Format,

    /// List the paths of a ref as `truss train cache summarize` lists those of a project, with its columns, in all
    /// three formats: by path from a to z unless --sort says otherwise, and always upwards
    #[arg(long)]
    truss: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Sort {
    /// By bytes
    Size,
    /// By path, or by ref
    #[value(alias = "filepath", alias = "path")]
    Name,
    /// By modification time; refs by when they were put
    Modified,
    /// Directories, files, symlinks
    Type,
    /// By permissions, as they are when the ref comes out
    Permissions,
}

#[derive(Clone, Copy, ValueEnum)]
enum Order {
    Asc,
    Desc,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Table,
    Csv,
    Json,
    /// The table of --truss
    CliTable,
}

/// The JSON form of the summary.
#[derive(Serialize)]
struct SummaryReport {
    target: String,
    #[serde(flatten)]
    summary: Summary,
    /// When the newest version was put, and by whom.
    time: Timestamp,
    user: String,
    host: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_use: Option<Date>,
    parts: Vec<Part>,
}

/// A ref of the namespace, or a path of the ref.
#[derive(Serialize)]
struct Part {
    #[serde(flatten)]
    path: names::Path,
    #[serde(skip_serializing_if = "Option::is_none")]
    versions: Option<u64>,
    entries: u64,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    modified: Option<Timestamp>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    permissions: Option<&'static str>,
    /// Bytes that no other ref needs, and bytes that others need too.
    #[serde(skip_serializing_if = "Option::is_none")]
    unique: Option<Share>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shared: Option<Share>,
    /// For a ref: who put its newest version, and its last use.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_use: Option<Date>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let target = match names::target(&args.target)? {
        Target::Ref(_) => Target::Ref(names::version(&args.target)?),
        namespace => namespace,
    };
    let store = context.open()?;
    let reader = Reader::new(&store)?;
    if args.truss || matches!(args.output, Format::CliTable) {
        return as_truss(&reader, &target, args, context);
    }
    let uses = LastUses::read(&store)?;
    let view = reader.view();
    let (newest, last_use) = newest(&view.state, &target, &uses)?;
    let (summary, mut parts) = match &target {
        Target::Namespace(namespace) => {
            let (summary, shares) = inspect::summarize_refs(&reader, namespace)?;
            (summary, refs(&view.state, namespace, (&uses, &shares))?)
        }
        Target::Ref(spec) => {
            let summary = inspect::summarize(&reader, &target)?;
            (summary, paths(&reader, spec, args.depth.unwrap_or(1))?)
        }
    };
    sort(&mut parts, args.sort.unwrap_or(Sort::Size), args.order);
    let report = SummaryReport {
        target: target.to_string(),
        summary,
        time: newest.time,
        user: newest.who.user,
        host: newest.who.host,
        last_use,
        parts,
    };
    match args.output {
        Format::Csv if !context.out.is_json() => csv::print(context, &report),
        Format::Json => context.out.json(&report),
        _ => context.out.answer(&report),
    }
}

fn as_truss(reader: &Reader<'_>, target: &Target, args: &Args, context: &Context) -> Result<()> {
    let Target::Ref(spec) = target else {
        return Err(Error::invalid(format!("{target}: --truss is for one ref"))
            .hint("the cache of a project is `project/NAME/cache`"));
    };
    let (_, version) = reader.view().state.at(&spec.name, spec.version.as_ref())?;
    let mut parts = paths(reader, spec, args.depth.unwrap_or(u32::MAX))?;
    truss::sort(&mut parts, args.sort.unwrap_or(Sort::Name), args.order);
    let format = match context.out.is_json() {
        true => Format::Json,
        false => args.output,
    };
    let bytes = version.root.bytes();
    truss::TrussReport::new(target.to_string(), version.time, bytes, &parts).print(format, context)
}

/// The version that was put last, and the last use of any version.
fn newest(state: &State, target: &Target, uses: &LastUses) -> Result<(Version, Option<Date>)> {
    match target {
        Target::Ref(spec) => {
            let (_, version) = state.at(&spec.name, spec.version.as_ref())?;
            Ok((version, uses.of(state, &spec.name)?))
        }
        Target::Namespace(namespace) => {
            let (mut newest, mut last_use) = (None::<Version>, None);
            for line in state.refs_of(Some(namespace)) {
                let line = line?;
                last_use = last_use.max(uses.of(state, &line.name)?);
                if newest
                    .as_ref()
                    .is_none_or(|newest| newest.time < line.version.time)
                {
                    newest = Some(line.version);
                }
            }
            let newest = newest.ok_or_else(|| state.no_namespace(namespace))?;
            Ok((newest, last_use))
        }
    }
}

/// Sorts parts, which are ordered by name.
fn sort(parts: &mut [Part], key: Sort, order: Option<Order>) {
    match key {
        Sort::Size => parts.sort_by_key(|part| Reverse(part.bytes)),
        Sort::Name => {}
        Sort::Modified => parts.sort_by_key(|part| Reverse(part.modified)),
        Sort::Type => parts.sort_by_key(|part| part.kind),
        Sort::Permissions => parts.sort_by_key(|part| part.permissions),
    }
    let usual = match key {
        Sort::Size | Sort::Modified => Order::Desc,
        Sort::Name | Sort::Type | Sort::Permissions => Order::Asc,
    };
    if matches!(
        (usual, order),
        (Order::Asc, Some(Order::Desc)) | (Order::Desc, Some(Order::Asc))
    ) {
        parts.reverse();
    }
}

fn refs(
    state: &State,
    namespace: &Namespace,
    (uses, shares): (&LastUses, &[RefShares]),
) -> Result<Vec<Part>> {
    let part = |line: Result<inspect::RefLine>| {
        let line = line?;
        let at = shares.binary_search_by(|one| one.name.cmp(&line.name));
        let shares = at.ok().and_then(|at| shares.get(at));
        Ok(Part {
            path: names::Path::new(line.name.as_str().as_bytes()),
            versions: Some(line.kept.versions),
            entries: line.version.root.entries(),
            bytes: line.kept.bytes,
            modified: Some(line.version.time),
            kind: None,
            permissions: None,
            unique: shares.map(|shares| shares.unique),
            shared: shares.map(|shares| shares.shared),
            last_use: uses.of(state, &line.name)?,
            user: Some(line.version.who.user),
            host: Some(line.version.who.host),
        })
    };
    state.refs_of(Some(namespace)).map(part).collect()
}

fn paths(reader: &Reader<'_>, spec: &RefSpec, depth: u32) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    let mut pending = vec![(spec.clone(), depth)];
    while let Some((spec, depth)) = pending.pop().filter(|(_, depth)| *depth > 0) {
        let options = ListOptions {
            times: true,
            lost: false,
            ..ListOptions::default()
        };
        inspect::ls(reader, &spec, options, &mut |listed| {
            let path = [spec.path.as_slice(), listed.path.as_slice()];
            let path = path
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect::<Vec<_>>()
                .join(&b'/');
            let (entries, bytes) = match &listed.node {
                Node::File { content, .. } => (1, content.size),
                Node::Symlink { .. } => (1, 0),
                Node::Tree { totals, .. } => {
                    pending.push((
                        RefSpec {
                            path: path.clone(),
                            ..spec.clone()
                        },
                        depth - 1,
                    ));
                    (totals.entries, totals.bytes)
                }
            };
            parts.push(Part {
                path: names::Path::new(&path),
                versions: None,
                entries,
                bytes,
                modified: listed.time.and_then(entry::timestamp),
                kind: Some(ShownEntry::from(&Entry::from(&listed.node)).kind),
                permissions: Some(permissions(&listed.node)),
                unique: None,
                shared: None,
                user: None,
                host: None,
                last_use: None,
            });
            Ok(())
        })?;
    }
    parts.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(parts)
}

/// Permissions as `ls -l` shows them after a get: only the executable bit is kept.
fn permissions(node: &Node) -> &'static str {
    match node {
        Node::Tree { .. } => "drwxr-xr-x",
        Node::Symlink { .. } => "lrwxrwxrwx",
        Node::File {
            executable: true, ..
        } => "-rwxr-xr-x",
        Node::File { .. } => "-rw-r--r--",
    }
}

impl fmt::Display for SummaryReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let versions = human::counted(self.summary.versions, "version");
        writeln!(
            out,
            "{}: {versions} of {}",
            self.target,
            human::counted(self.summary.refs, "ref")
        )?;
        writeln!(
            out,
            "logical  {} (newest), {} (all versions)",
            human::bytes(self.summary.bytes),
            human::bytes(self.summary.version_bytes)
        )?;
        writeln!(out, "unique   {}", share(&self.summary.unique))?;
        writeln!(out, "shared   {}", share(&self.summary.shared))?;
        deltas(&self.summary.deltas, out)?;
        let who = by(&self.user, &self.host);
        let put = human::time(self.time);
        writeln!(
            out,
            "put      {put} by {who}, last used {}",
            day(self.last_use)
        )?;
        let of_refs = self.parts.iter().any(|part| part.versions.is_some());
        let table = match of_refs {
            true => self.table_of_refs(),
            false => self.table_of_paths(),
        };
        write!(out, "\n{table}")
    }
}

impl SummaryReport {
    fn table_of_refs(&self) -> Table {
        let mut table = Table::new(&[
            ("size", Side::Right),
            ("unique", Side::Right),
            ("shared", Side::Right),
            ("entries", Side::Right),
            ("put (UTC)", Side::Left),
            ("by", Side::Left),
            ("last use", Side::Left),
            ("ref", Side::Left),
        ]);
        let stored = |share: Option<Share>| share.map(|share| human::bytes(share.stored_bytes));
        for part in &self.parts {
            let (user, host) = (part.user.as_deref(), part.host.as_deref());
            table.push([
                human::bytes(part.bytes),
                stored(part.unique).unwrap_or_default(),
                stored(part.shared).unwrap_or_default(),
                human::count(part.entries),
                part.modified.map(human::time).unwrap_or_default(),
                by(user.unwrap_or_default(), host.unwrap_or_default()),
                csv::known(part.last_use),
                part.path.to_string(),
            ]);
        }
        table
    }

    fn table_of_paths(&self) -> Table {
        let mut table = Table::new(&[
            ("size", Side::Right),
            ("entries", Side::Right),
            ("modified (UTC)", Side::Left),
            ("type", Side::Left),
            ("permissions", Side::Left),
            ("path", Side::Left),
        ]);
        for part in &self.parts {
            table.push([
                human::bytes(part.bytes),
                human::count(part.entries),
                part.modified.map(human::time).unwrap_or_default(),
                part.kind.unwrap_or_default().into(),
                part.permissions.unwrap_or_default().into(),
                part.path.to_string(),
            ]);
        }
        table
    }
}

fn deltas(deltas: &Deltas, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    if deltas.is_none() {
        return Ok(());
    }
    let saved = human::saved(deltas.saved_bytes);
    writeln!(out, "deltas   {}; {saved}", share(&deltas.chunks))?;
    write!(out, "bases    {}", share(&deltas.bases))?;
    match deltas.held {
        Some(held) if held.chunks > 0 => writeln!(
            out,
            "; {} of that for deltas alone",
            human::bytes(held.stored_bytes)
        ),
        _ => writeln!(out),
    }
}

fn by(user: &str, host: &str) -> String {
    names::shown(format!("{user}@{host}").as_bytes())
}

/// The day of the last use. A version that nobody got or materialized was last used when it was put.
fn day(day: Option<Date>) -> String {
    day.map_or_else(|| "when it was put".to_owned(), |day| day.to_string())
}

fn share(share: &Share) -> String {
    format!(
        "{} in {}, stored {}",
        human::bytes(share.bytes),
        human::counted(share.chunks, "chunk"),
        human::bytes(share.stored_bytes)
    )
}

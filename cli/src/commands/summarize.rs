//! `store summarize`: what a namespace or a ref takes, and where in it.

use std::cmp::Reverse;
use std::ffi::OsString;
use std::fmt;

use clap::ValueEnum;
use jiff::Timestamp;
use serde::Serialize;
use store::Reader;
use store::Result;
use store::inspect::{self, Entry, ListOptions, Share, Summary};
use store::{Namespace, Node, RefSpec, State, Target};

use crate::context::Context;
use crate::ui::entry::{self, Told};
use crate::ui::table::{Side, Table};
use crate::ui::{human, names};

/// Show what a namespace or a ref takes, and where in it
///
/// Logical bytes are those of the files as they come out. Unique is what nothing else in the
/// store needs: dropping it gives that back with the next `store gc`. Shared is what other refs
/// or versions need as well. Below that come the refs of a namespace, or the paths of a ref.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A namespace, a ref with all its versions, or one version
    #[arg(value_name = "NAMESPACE|REF[@N]")]
    target: OsString,

    /// How many levels of directories to list
    #[arg(long, value_name = "N", default_value_t = 1)]
    depth: u32,

    /// What to list by: size and modified with the largest and newest first, all else from a to z
    #[arg(long, value_name = "KEY", value_enum, default_value_t = Sort::Size)]
    sort: Sort,

    /// Up or down, whatever the key
    #[arg(long, value_name = "ORDER", value_enum)]
    order: Option<Order>,

    /// How to print it; csv and json give bytes as plain numbers
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    output: Format,
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
}

/// All there is to say, as a machine reads it.
#[derive(Serialize)]
struct Report {
    target: String,
    #[serde(flatten)]
    summary: Summary,
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
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let target = match names::target(&args.target)? {
        Target::Ref(_) => Target::Ref(names::version(&args.target)?),
        namespace => namespace,
    };
    let store = context.open()?;
    let reader = Reader::new(&store)?;
    let summary = inspect::summarize(&reader, &target)?;
    let mut parts = match &target {
        Target::Namespace(namespace) => refs(&reader.view().state, namespace)?,
        Target::Ref(spec) => paths(&reader, spec, args.depth)?,
    };
    sort(&mut parts, args.sort, args.order);
    let report = Report {
        target: target.to_string(),
        summary,
        parts,
    };
    match args.output {
        Format::Csv if !context.out.is_json() => csv(context, &report),
        Format::Json => context.out.json(&report),
        _ => context.out.answer(&report),
    }
}

/// Sorts what comes by name already.
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

fn refs(state: &State, namespace: &Namespace) -> Result<Vec<Part>> {
    let part = |line: Result<inspect::RefLine>| {
        let line = line?;
        Ok(Part {
            path: names::Path::new(line.name.as_str().as_bytes()),
            versions: Some(line.kept.versions),
            entries: line.version.root.entries(),
            bytes: line.kept.bytes,
            modified: Some(line.version.time),
            kind: None,
            permissions: None,
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
                kind: Some(Told::from(&Entry::from(&listed.node)).kind),
                permissions: Some(permissions(&listed.node)),
            });
            Ok(())
        })?;
    }
    parts.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(parts)
}

/// As `ls -l` shows what comes out: only the executable bit is kept.
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

/// One line for the whole, then one for each part; what is not known of a part is empty.
fn csv(context: &Context, report: &Report) -> Result<()> {
    context.out.line("name,versions,entries,bytes,version_bytes,unique_bytes,unique_stored_bytes,shared_bytes,shared_stored_bytes,modified,type,permissions")?;
    context.out.line(format_args!(
        "{},{},{},{},{},{},{},{},{},,,",
        csv_field(&report.target),
        report.summary.versions,
        report.summary.entries,
        report.summary.bytes,
        report.summary.version_bytes,
        report.summary.unique.bytes,
        report.summary.unique.stored_bytes,
        report.summary.shared.bytes,
        report.summary.shared.stored_bytes,
    ))?;
    report.parts.iter().try_for_each(|part| {
        let versions = part
            .versions
            .map(|count| count.to_string())
            .unwrap_or_default();
        let name = csv_field(&part.path.to_string());
        let modified = part.modified.map(|time| time.to_string());
        context.out.line(format_args!(
            "{name},{versions},{},{},,,,,,{},{},{}",
            part.entries,
            part.bytes,
            modified.unwrap_or_default(),
            part.kind.unwrap_or_default(),
            part.permissions.unwrap_or_default(),
        ))
    })
}

/// As RFC 4180 has it.
fn csv_field(text: &str) -> String {
    if text.contains([',', '"']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

impl fmt::Display for Report {
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
        let of_refs = self.parts.iter().any(|part| part.versions.is_some());
        let mut table = match of_refs {
            true => Table::new(&[
                ("size", Side::Right),
                ("entries", Side::Right),
                ("put (UTC)", Side::Left),
                ("ref", Side::Left),
            ]),
            false => Table::new(&[
                ("size", Side::Right),
                ("entries", Side::Right),
                ("modified (UTC)", Side::Left),
                ("type", Side::Left),
                ("permissions", Side::Left),
                ("path", Side::Left),
            ]),
        };
        for part in &self.parts {
            let size = human::bytes(part.bytes);
            let entries = human::count(part.entries);
            let modified = part.modified.map(human::time).unwrap_or_default();
            let path = part.path.to_string();
            match (part.kind, part.permissions) {
                (Some(kind), Some(permissions)) => {
                    table.push([
                        size,
                        entries,
                        modified,
                        kind.into(),
                        permissions.into(),
                        path,
                    ]);
                }
                _ => table.push([size, entries, modified, path]),
            }
        }
        write!(out, "\n{table}")
    }
}

fn share(share: &Share) -> String {
    format!(
        "{} in {}, stored {}",
        human::bytes(share.bytes),
        human::counted(share.chunks, "chunk"),
        human::bytes(share.stored_bytes)
    )
}

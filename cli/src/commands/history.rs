//! `store history`: lists the versions of a ref.

use std::ffi::OsString;

use jiff::Timestamp;
use jiff::civil::Date;
use serde::Serialize;
use store::Uses;
use store::{Id, Origin, Root, Version};
use store::{Result, VersionId};

use crate::context::Context;
use crate::ui::table::Side;
use crate::ui::{human, names};

/// List the versions of a ref, newest first
///
/// The number of a version belongs to this store. Its id is the same in every store: REF@ID works wherever REF@N does.
/// `put` is when the version came to this store; the origin of a copy says when it was first put, and by whom.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A ref, like project/llama-ft/imagenet
    #[arg(value_name = "REF")]
    name: OsString,
}

/// One version; an object of `--json`.
#[derive(Serialize)]
struct Line<'v> {
    version: u64,
    /// The id of the content, which is the same in every store. It can replace the number in a ref.
    id: Id,
    time: Timestamp,
    host: &'v str,
    user: &'v str,
    program: &'v str,
    message: &'v str,
    kind: &'static str,
    bytes: u64,
    entries: u64,
    pinned: bool,
    /// Only the user who gets the version will be able to read the files, since only their owner could when it was put.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    private: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
    /// The last day on which the version was got or materialized.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_use: Option<Date>,
    /// Where the version was first put, if it came from another store.
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<&'v Origin>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let name = names::name(&args.name)?;
    let store = context.open()?;
    let state = store.readable_state()?;
    let uses = Uses::read(store.remote().as_ref())?;
    let now = Timestamp::now();
    let versions = state.versions(&name)?;
    let lines = versions.iter().rev().map(|(number, version)| {
        let last_use = uses.last(VersionId::of(&name, *number), now);
        line(*number, version, last_use)
    });
    let columns = [
        ("version", Side::Right),
        ("id", Side::Left),
        ("put (UTC)", Side::Left),
        ("by", Side::Left),
        ("size", Side::Right),
        ("last use", Side::Left),
        ("marks", Side::Left),
        ("origin", Side::Left),
        ("message", Side::Cut),
    ];
    context.out.list(&columns, lines, cells)
}

fn line(number: u64, version: &Version, last_use: Option<Date>) -> Line<'_> {
    let kind = match version.root {
        Root::File { .. } => "file",
        Root::Tree { .. } => "tree",
    };
    Line {
        version: number,
        id: version.id(),
        time: version.time,
        host: &version.who.host,
        user: &version.who.user,
        program: &version.who.program,
        message: &version.message,
        kind,
        bytes: version.root.bytes(),
        entries: version.root.entries(),
        pinned: version.pinned,
        private: version.private,
        expires: version.expires,
        last_use,
        origin: version.origin.as_deref(),
    }
}

/// An origin as `@3 of 2025-01-02 03:04 by ana@node-1`.
fn shown_origin(origin: &Origin) -> String {
    let who = format!("{}@{}", origin.who.user, origin.who.host);
    format!(
        "@{} of {} by {}",
        origin.version,
        human::time(origin.time),
        names::shown(who.as_bytes())
    )
}

fn marks(line: &Line<'_>) -> String {
    let marks = [(line.pinned, "pinned"), (line.private, "private")];
    let marks = marks.iter().filter(|(is_set, _)| *is_set);
    marks.map(|(_, mark)| *mark).collect::<Vec<_>>().join(", ")
}

fn cells(line: &Line<'_>) -> [String; 9] {
    [
        line.version.to_string(),
        line.id.clone().short().to_string(),
        human::time(line.time),
        names::shown(format!("{}@{}", line.user, line.host).as_bytes()),
        human::bytes(line.bytes),
        line.last_use
            .map_or_else(String::new, |day| day.to_string()),
        marks(line),
        line.origin.map_or_else(String::new, shown_origin),
        names::shown(line.message.as_bytes()),
    ]
}

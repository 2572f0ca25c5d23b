//! `store token ls`: lists the tokens.

use jiff::Timestamp;
use serde::Serialize;
use store::{Pattern, Result};

use crate::context::Context;
use crate::serve::tokens::{self, Role, Token};
use crate::ui::human;
use crate::ui::table::Side;

/// List tokens: their names and what they allow
#[derive(clap::Args)]
pub(crate) struct Args {}

/// One token; an object of `--json`.
#[derive(Serialize)]
struct Line {
    name: String,
    role: Role,
    namespaces: Vec<Pattern>,
    created: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    upstream: bool,
}

impl From<Token> for Line {
    fn from(token: Token) -> Self {
        Self {
            name: token.name,
            role: token.role,
            namespaces: token.namespaces,
            created: token.created,
            expires: token.expires,
            upstream: token.upstream,
        }
    }
}

pub(crate) fn run(_args: &Args, context: &Context) -> Result<()> {
    let all = tokens::read(&super::place()?)?;
    let columns = [
        ("name", Side::Left),
        ("role", Side::Left),
        ("created", Side::Left),
        ("expires", Side::Left),
        ("namespaces", Side::Left),
    ];
    let cells = |line: &Line| {
        let namespaces: Vec<&str> = line.namespaces.iter().map(Pattern::as_str).collect();
        [
            line.name.clone(),
            match (line.role, line.upstream) {
                (Role::Read, false) => "read".to_owned(),
                (Role::Read, true) => "read, upstream".to_owned(),
                (Role::Write, false) => "write".to_owned(),
                (Role::Write, true) => "write, upstream".to_owned(),
            },
            human::time(line.created),
            line.expires.map(human::time).unwrap_or_default(),
            namespaces.join(" "),
        ]
    };
    context
        .out
        .list(&columns, all.into_iter().map(Line::from), cells)
}

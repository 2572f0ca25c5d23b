//! Commands in hints, notes and reports name the store that the command was given, so that they do the same when they are
//! pasted.

use std::borrow::Cow;

use crate::ui::names::quoted;

/// Verbs that work with a store, and do not name it in another way.
const VERBS: [&str; 29] = [
    "cache",
    "cat",
    "diff",
    "du",
    "export",
    "gc",
    "get",
    "history",
    "import",
    "info",
    "init",
    "keep",
    "ls",
    "materialize",
    "neff",
    "pin",
    "policy",
    "pull",
    "push",
    "put",
    "repair",
    "rm",
    "run",
    "save",
    "summarize",
    "undo",
    "unpin",
    "verify",
    "wait",
];

/// Adds the store `named` to the commands between backquotes, unless they already name one.
pub(crate) fn with_store<'t>(text: &'t str, named: &str) -> Cow<'t, str> {
    if !text.contains("`store ") {
        return Cow::Borrowed(text);
    }
    let named = quoted(named);
    let mut parts = text.split('`');
    let mut changed = parts.next().unwrap_or_default().to_owned();
    for (at, part) in parts.enumerate() {
        changed.push('`');
        // Every other part is between backquotes.
        let command = part.strip_prefix("store ").filter(|_| at % 2 == 0);
        let verb = command.and_then(|command| command.split(' ').next());
        match verb.filter(|verb| {
            VERBS.contains(verb) && !part.contains("--store") && !part.contains("STORE")
        }) {
            // This command already names the place.
            Some("init") if part != "store init" => changed += part,
            Some(verb) => {
                let rest = command.and_then(|command| command.strip_prefix(verb));
                changed += &format!("store {verb} --store {named}{}", rest.unwrap_or_default());
            }
            None => changed += part,
        }
    }
    match changed == text {
        true => Cow::Borrowed(text),
        false => Cow::Owned(changed),
    }
}

//! The verbs in groups by purpose, for `store --help` and `store help`.

use std::fmt::Write;

use crate::ui::paint::{self, Word};

/// Every verb is in one of these groups.
pub(crate) const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Data",
        &[
            "put",
            "save",
            "get",
            "materialize",
            "run",
            "cache",
            "wait",
            "watch",
            "serve",
            "cat",
        ],
    ),
    (
        "Look",
        &["ls", "diff", "history", "summarize", "du", "info"],
    ),
    (
        "Clusters",
        &[
            "cluster",
            "where",
            "push",
            "pull",
            "duplicate",
            "export",
            "import",
        ],
    ),
    (
        "Space",
        &["rm", "undo", "pin", "unpin", "policy", "gc", "pool"],
    ),
    ("Soundness", &["verify", "repair"]),
    ("Set-up", &["init", "token", "help", "completions", "man"]),
];

/// A verb and its purpose in one line.
pub(crate) struct Verb {
    pub(crate) group: &'static str,
    pub(crate) name: &'static str,
    pub(crate) about: String,
}

/// The verbs of `command`, group by group.
pub(crate) fn verbs(command: &clap::Command) -> Vec<Verb> {
    let about = |name: &str| {
        let verb = command.find_subcommand(name)?;
        verb.get_about().map(ToString::to_string)
    };
    let groups = GROUPS.into_iter();
    groups
        .flat_map(|(group, names)| names.iter().map(move |name| (group, *name)))
        .map(|(group, name)| Verb {
            group,
            name,
            about: about(name).unwrap_or_default(),
        })
        .collect()
}

/// The list for people, with coloured headings.
pub(crate) fn list(command: &clap::Command) -> String {
    let verbs = verbs(command);
    let mut text = String::new();
    for (group, _) in GROUPS {
        let lines = verbs.iter().filter(|verb| verb.group == group);
        let lines = lines.map(|verb| (verb.name, verb.about.as_str()));
        text += &section(group, lines);
    }
    text.truncate(text.trim_end().len());
    text
}

/// A heading, and names with their descriptions.
pub(crate) fn section<'l>(
    heading: &str,
    lines: impl Iterator<Item = (&'l str, &'l str)>,
) -> String {
    let mut text = paint::word(Word::Heading, format_args!("{heading}:")) + "\n";
    for (name, about) in lines {
        // Writing to a string cannot fail.
        let _always = writeln!(text, "  {name:<11}  {about}");
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::args;

    #[test]
    fn every_verb_stands_in_one_group() {
        let command = args::command();
        let visible = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        let mut known: Vec<&str> = visible.map(clap::Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        known.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, known);
    }
}

//! Suggestions for words that are unknown.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Verbs of other programs, and their names in this command.
const OTHERS: [(&str, &str); 27] = [
    ("add", "put"),
    ("backup", "put"),
    ("save", "put"),
    ("upload", "put"),
    ("checkout", "get"),
    ("download", "get"),
    ("export", "get"),
    ("restore", "get"),
    ("link", "materialize"),
    ("mount", "materialize"),
    ("list", "ls"),
    ("show", "ls"),
    ("delete", "rm"),
    ("del", "rm"),
    ("drop", "rm"),
    ("forget", "rm"),
    ("remove", "rm"),
    ("log", "history"),
    ("versions", "history"),
    ("stats", "info"),
    ("status", "info"),
    ("check", "verify"),
    ("fsck", "verify"),
    ("clean", "gc"),
    ("prune", "gc"),
    ("replicate", "duplicate"),
    ("sync", "duplicate"),
];

/// The entry of `known` that `word` is probably a typing mistake for.
pub(crate) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let far = |known: &str| strsim::damerau_levenshtein(word, known);
    let max = word.chars().count().div_ceil(4).min(3);
    let near = known.into_iter().map(|known| (far(known), known));
    let nearest = near.filter(|(far, _)| *far <= max).min();
    nearest.map(|(_, known)| known)
}

/// The name in this command of another program's verb.
pub(crate) fn verb_here(word: &str) -> Option<&'static str> {
    let mut others = OTHERS.into_iter();
    others.find_map(|(other, here)| (other == word).then_some(here))
}

/// Improves clap's suggestions: adds the verb that other programs name differently, and drops distant arguments.
pub(crate) fn better(mut error: clap::Error, command: &clap::Command) -> clap::Error {
    let text = |error: &clap::Error, kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    if let Some(verb) = text(&error, ContextKind::InvalidSubcommand)
        && let Some(here) = verb_here(&verb)
    {
        let here = ContextValue::Strings(vec![here.to_owned()]);
        drop(error.insert(ContextKind::SuggestedSubcommand, here));
    }
    let known = text(&error, ContextKind::SuggestedArg);
    if let (Some(wrong), Some(known)) = (text(&error, ContextKind::InvalidArg), known)
        && nearest(&wrong, [known.as_str()]).is_none()
    {
        // clap took its usage text from the suggestion, so the usage goes as well.
        let mut plain = clap::Error::new(ErrorKind::UnknownArgument).with_cmd(command);
        drop(plain.insert(ContextKind::InvalidArg, ContextValue::String(wrong)));
        return plain;
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_hand_is_near_and_another_word_is_not() {
        let known = ["nightly", "h200", "h100", "project/llama-ft"];
        for (word, expected) in [
            ("nigthly", Some("nightly")),
            ("h20", Some("h200")),
            ("project/lama-ft", Some("project/llama-ft")),
            ("weekly", None),
            ("b300", None),
        ] {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
    }
}

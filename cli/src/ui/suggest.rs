//! What a person may have meant by a word that is unknown.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Verbs of other programs, and what they are called here.
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

/// The one of `known` that `word` is a slip of the hand for.
pub(crate) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let far = |known: &str| strsim::damerau_levenshtein(word, known);
    let max = word.chars().count().div_ceil(4).min(3);
    let near = known.into_iter().map(|known| (far(known), known));
    let nearest = near.filter(|(far, _)| *far <= max).min();
    nearest.map(|(_, known)| known)
}

/// What a verb of another program is called here.
pub(crate) fn verb_here(word: &str) -> Option<&'static str> {
    let mut others = OTHERS.into_iter();
    others.find_map(|(other, here)| (other == word).then_some(here))
}

/// The same error with suggestions that help: what the verb is called here, and none that is far away.
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
        // The usage that comes with it is that of the suggestion as well.
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

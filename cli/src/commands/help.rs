//! `store help`: lists the verbs, and prints the help of a verb or a guide.

use serde::Serialize;
use store::{Error, Result};

use crate::commands::guides::{TOPICS, title};
use crate::commands::{args, groups};
use crate::ui::output::Output;
use crate::ui::suggest;

/// Print the help of a verb, or a guide by task
///
/// Without a name, list all verbs and guides.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A verb, or a guide like `space`
    #[arg(value_name = "VERB|TOPIC")]
    words: Vec<String>,
}

/// The JSON form of the list without arguments.
#[derive(Serialize)]
struct List<'l> {
    verbs: Vec<VerbTold<'l>>,
    topics: Vec<TopicTold<'l>>,
}

#[derive(Serialize)]
struct VerbTold<'l> {
    verb: &'l str,
    group: &'l str,
    about: &'l str,
}

#[derive(Serialize)]
struct TopicTold<'l> {
    topic: &'l str,
    title: &'l str,
}

/// The help of a verb, or a guide.
#[derive(Serialize)]
struct Page<'l> {
    title: &'l str,
    text: &'l str,
}

pub(crate) fn run(args: &Args, out: &Output) -> Result<()> {
    match args.words.as_slice() {
        [] => list(out),
        [topic] => match TOPICS.iter().find(|(name, _)| name == topic) {
            Some((_, text)) => guide(text, out),
            None => of_verb(&args.words, out),
        },
        words => of_verb(words, out),
    }
}

/// Valid arguments of `store help`.
pub(crate) fn names() -> Vec<String> {
    let verbs = groups::GROUPS.into_iter().flat_map(|(_, verbs)| verbs);
    let topics = TOPICS.iter().map(|(name, _)| name);
    verbs.chain(topics).map(ToString::to_string).collect()
}

fn list(out: &Output) -> Result<()> {
    let command = args::command();
    if out.is_json() {
        let verbs = groups::verbs(&command);
        let verbs = verbs.iter().map(|verb| VerbTold {
            verb: verb.name,
            group: verb.group,
            about: &verb.about,
        });
        let topics = TOPICS.iter().map(|(topic, text)| TopicTold {
            topic,
            title: title(text),
        });
        return out.json(&List {
            verbs: verbs.collect(),
            topics: topics.collect(),
        });
    }
    let topics = TOPICS.iter().map(|(name, text)| (*name, title(text)));
    let topics = groups::section("Guides", topics);
    let foot = "`store help VERB` lists the options of a verb, `store help TOPIC` prints a guide.";
    out.coloured(&format!("{}\n\n{topics}{foot}\n", groups::list(&command)))
}

fn guide(text: &str, out: &Output) -> Result<()> {
    if out.is_json() {
        let title = title(text);
        return out.json(&Page { title, text });
    }
    out.bytes(text.as_bytes())
}

/// Prints what `store VERB --help` prints.
fn of_verb(words: &[String], out: &Output) -> Result<()> {
    let mut verb = args::command();
    verb.build();
    for word in words {
        let below = verb.find_subcommand(word).cloned();
        verb = below.ok_or_else(|| unknown(word, &verb))?;
    }
    let title = [&["store".to_owned()], words].concat().join(" ");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let asked = [&["store"], words.as_slice(), &["--help"]].concat();
    let Err(shown) = args::command().try_get_matches_from(asked) else {
        return Ok(());
    };
    let help = shown.render();
    match out.is_json() {
        true => out.json(&Page {
            title: &title,
            text: &help.to_string(),
        }),
        false => out.coloured(&help.ansi().to_string()),
    }
}

fn unknown(word: &str, above: &clap::Command) -> Error {
    let verbs = above.get_subcommands().map(clap::Command::get_name);
    let topics = TOPICS.iter().map(|(name, _)| *name);
    let known: Vec<&str> = match above.get_name() {
        "store" => verbs.chain(topics).collect(),
        _ => verbs.collect(),
    };
    let near = suggest::verb_here(word).or_else(|| suggest::nearest(word, known));
    let near = near.map_or_else(String::new, |near| format!("did you mean {near}? "));
    Error::invalid(format!("{word}: no such verb or guide"))
        .hint(format!("{near}`store help` lists all of them"))
}

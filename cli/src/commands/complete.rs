//! Completion of values in shells: refs, namespaces, stores, clusters, jobs, profiles and guides.
//!
//! The script of `store completions` runs this program with an environment variable. The program then prints no errors,
//! creates nothing, and waits only a short time for a store.

use std::ffi::{OsStr, OsString};
use std::sync::mpsc;
use std::time::Duration;

use clap::{Arg, Command};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use store::{Error, Namespace, Result};

use crate::commands::{args, help};
use crate::config::Config;
use crate::context::Context;

/// The script sets this variable to the name of the shell.
const VARIABLE: &str = "STORE_COMPLETE";
/// Time for a store to list its refs while a person waits.
const PATIENCE: Duration = Duration::from_secs(1);

/// Answers a completion request, if this is one.
pub(crate) fn is_answered() -> bool {
    let here = std::env::current_dir().ok();
    let asked = CompleteEnv::with_factory(|| with_values(args::command()))
        .var(VARIABLE)
        .try_complete(std::env::args_os(), here.as_deref());
    // An invalid request gets no message, which would be printed in the middle of the command line.
    asked.unwrap_or(true)
}

/// The script that makes `shell` ask this program.
pub(crate) fn script(shell: &str) -> Vec<u8> {
    let mut script = Vec::new();
    if let Some(shell) = Shells::builtins().completer(shell) {
        // Writing to a vector cannot fail.
        let _always = shell.write_registration(VARIABLE, "store", "store", "store", &mut script);
    }
    script
}

/// The kind of value that an argument takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A ref, or also a namespace.
    Ref {
        or_namespace: bool,
    },
    Namespace,
    Store,
    Cluster,
    Job,
    Profile,
    Topic,
}

/// Adds completers to the arguments of known kinds.
fn with_values(command: Command) -> Command {
    let verbs: Vec<String> = command
        .get_subcommands()
        .map(|verb| verb.get_name().to_owned())
        .collect();
    let command = command.mut_args(|arg| match kind(&arg) {
        Some(kind) => arg.add(ArgValueCompleter::new(move |typed: &OsStr| {
            candidates(kind, typed)
        })),
        None => arg,
    });
    verbs.into_iter().fold(command, |command, verb| {
        command.mut_subcommand(verb, with_values)
    })
}

/// The kind of an argument, by its value name in the help.
fn kind(arg: &Arg) -> Option<Kind> {
    let value = match arg.get_value_names().and_then(<[_]>::first) {
        Some(name) => name.to_string(),
        None => arg.get_id().as_str().to_uppercase(),
    };
    let id = arg.get_id().as_str();
    match value.as_str() {
        "STORE" => Some(Kind::Store),
        "CLUSTER" => Some(Kind::Cluster),
        "JOB" => Some(Kind::Job),
        "NAMESPACE" => Some(Kind::Namespace),
        "VERB|TOPIC" => Some(Kind::Topic),
        "PROFILE" if arg.get_possible_values().is_empty() => Some(Kind::Profile),
        _ if id == "store" => Some(Kind::Store),
        _ if id == "store_profile" => Some(Kind::Profile),
        _ if id == "job" => Some(Kind::Job),
        _ if value.starts_with("REF") || value.starts_with("NAMESPACE|") => Some(Kind::Ref {
            or_namespace: value.contains("NAMESPACE"),
        }),
        _ => None,
    }
}

/// Computes the candidates on another thread, so that the wait can time out.
fn candidates(kind: Kind, typed: &OsStr) -> Vec<CompletionCandidate> {
    let Some(typed) = typed.to_str().map(str::to_owned) else {
        return Vec::new();
    };
    let (sender, answer) = mpsc::channel();
    std::thread::spawn(move || {
        let values = values(kind, &typed).unwrap_or_default();
        let fitting = (values.into_iter())
            .filter(|value| value.starts_with(&typed) && value.chars().all(is_plain));
        // The send fails if the wait timed out.
        drop(sender.send(fitting.collect::<Vec<_>>()));
    });
    let values = answer.recv_timeout(PATIENCE).unwrap_or_default();
    values.into_iter().map(CompletionCandidate::new).collect()
}

/// Whether no shell gives the character a meaning. Bash inserts candidates as they are, and whoever may write to a store
/// chooses the names of refs; other names are typed, in quotes.
fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || "/._-@:+=,".contains(c)
}

fn values(kind: Kind, typed: &str) -> Result<Vec<String>> {
    let text = |name: &dyn ToString| name.to_string();
    let clusters = |config: Config| config.cluster.keys().map(|name| text(name)).collect();
    Ok(match kind {
        Kind::Ref { or_namespace } => refs(typed, or_namespace)?,
        Kind::Namespace => namespaces(&context()?)?,
        Kind::Store | Kind::Cluster => clusters(Config::load()?),
        Kind::Job => Config::load()?.job.keys().map(|name| text(name)).collect(),
        Kind::Profile => Config::load()?.profiles.into_keys().collect(),
        Kind::Topic => help::names(),
    })
}

/// Completes namespaces first, then the refs of a namespace, then the versions of a ref.
fn refs(typed: &str, or_namespace: bool) -> Result<Vec<String>> {
    let context = context()?;
    if typed.matches('/').count() < 2 {
        let names = namespaces(&context)?;
        let within = names.iter().map(|name| format!("{name}/"));
        let alone = names.iter().filter(|_| or_namespace).cloned();
        return Ok(alone.chain(within).collect());
    }
    let state = context.open()?.state()?;
    if let Some((name, _)) = typed.split_once('@') {
        let versions = state.versions(&name.parse()?)?;
        let versions = versions.keys().rev();
        return Ok(versions.map(|number| format!("{name}@{number}")).collect());
    }
    let end = typed.match_indices('/').nth(1).map(|(at, _)| at);
    let namespace: Option<Namespace> = end.and_then(|end| typed.get(..end)?.parse().ok());
    let refs = state.refs.heads(namespace.as_ref());
    let refs = refs.filter(|found| found.as_ref().map_or(true, |(_, head)| head.live > 0));
    refs.map(|found| Ok(found?.0.to_string())).collect()
}

fn namespaces(context: &Context) -> Result<Vec<String>> {
    let state = context.open()?.state()?;
    let names = state.namespaces().into_iter();
    Ok(names.map(|line| line.name.as_str().to_owned()).collect())
}

/// The context for the store that the typed words name.
fn context() -> Result<Context> {
    let words = std::env::args_os().skip_while(|word| word != "--").skip(2);
    let global = args::global(named_store(words));
    Context::new(
        global.ok_or_else(|| Error::invalid("what completes: no such options"))?,
        false,
    )
}

/// The store of `--store URL`, `--from STORE` or `pull CLUSTER`.
fn named_store(words: impl Iterator<Item = OsString>) -> Option<OsString> {
    let words: Vec<OsString> = words.collect();
    let mut named = None;
    let mut before: Option<&OsStr> = None;
    for word in &words {
        let text = word.to_str().unwrap_or_default();
        let inline = ["--store=", "--from="];
        if let Some(url) = inline.iter().find_map(|flag| text.strip_prefix(flag)) {
            named = Some(url.into());
        } else if before.is_some_and(|flag| flag == "--store" || flag == "--from") {
            named = Some(word.clone());
        } else if before.is_some_and(|verb| verb == "pull") && !text.starts_with('-') {
            named = named.or_else(|| Some(word.clone()));
        }
        before = Some(word);
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(command: &Command, of: &str) -> Vec<(String, Kind)> {
        let verbs = command.get_subcommands();
        let own = command
            .get_arguments()
            .filter_map(|arg| Some((format!("{of} {}", arg.get_id()), kind(arg)?)));
        own.chain(verbs.flat_map(|verb| kinds(verb, verb.get_name())))
            .collect()
    }

    #[test]
    fn what_names_something_is_completed() {
        let found = kinds(&args::command(), "store");
        let one = Kind::Ref {
            or_namespace: false,
        };
        let any = Kind::Ref { or_namespace: true };
        for (argument, kind) in [
            ("store store", Kind::Store),
            ("store store_profile", Kind::Profile),
            ("put target", one),
            ("get source", one),
            ("materialize source", one),
            ("cat source", one),
            ("diff before", one),
            ("history name", one),
            ("ls target", any),
            ("rm targets", any),
            ("summarize target", any),
            ("verify target", any),
            ("push refs", any),
            ("push cluster", Kind::Cluster),
            ("pull cluster", Kind::Cluster),
            ("pull refs", any),
            ("duplicate from", Kind::Store),
            ("duplicate to", Kind::Store),
            ("duplicate job", Kind::Job),
            ("duplicate status", Kind::Job),
            ("du namespaces", Kind::Namespace),
            ("help words", Kind::Topic),
            ("add profile", Kind::Profile),
            ("rm name", Kind::Cluster),
        ] {
            assert!(
                found.contains(&(argument.to_owned(), kind)),
                "{argument}: {found:?}"
            );
        }
        assert!(!found.iter().any(|(name, _)| name == "put profile"));
    }

    #[test]
    fn the_store_is_the_one_that_was_named() {
        for (line, expected) in [
            ("ls ", None),
            ("ls --store a ", Some("a")),
            ("--store=a ls ", Some("a")),
            ("duplicate --from a x", Some("a")),
            ("pull h200 project/", Some("h200")),
            ("pull --verify ", None),
        ] {
            let words = line.split(' ').map(OsString::from);
            assert_eq!(named_store(words), expected.map(OsString::from), "{line}");
        }
    }
}

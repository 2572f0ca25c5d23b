//! `store rm`: versions, refs and namespaces are dropped; their bytes go with the next gc.

use std::ffi::OsString;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use serde::Serialize;
use store::format::{Namespace, State, Target};
use store::refs::{self, Dropped};
use store::{Error, Result, Store};

use crate::context::Context;
use crate::{human, names};

/// Drop a version, a ref with all its versions, or a namespace with all its refs
///
/// REF@N drops one version and REF drops all of them; a pinned version is refused, and then
/// nothing is dropped. NAMESPACE drops every ref in it but for pinned versions, and asks for its
/// name to be typed again. The number of a dropped version is never used again, and the log keeps
/// the record. What nothing else uses is deleted by the next `store gc`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to drop
    #[arg(value_name = "REF[@N]|NAMESPACE")]
    target: OsString,

    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

/// What a machine reads.
#[derive(Serialize)]
struct Report {
    dropped: Vec<String>,
    kept_pinned: Vec<String>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let target = names::target(&args.target)?;
    let store = context.open()?;
    let dropped = match target {
        Target::Ref(_) => {
            let spec = names::version(&args.target)?;
            refs::drop_versions(&store, &spec.name, spec.version)?
        }
        Target::Namespace(namespace) => drop_namespace(args, context, &store, &namespace)?,
    };
    context.out.report(&Report::from(dropped))
}

fn drop_namespace(
    args: &Args,
    context: &Context,
    store: &Store,
    namespace: &Namespace,
) -> Result<Dropped> {
    if !args.yes {
        confirm(context, &store.state()?, namespace)?;
    }
    refs::drop_namespace(store, namespace)
}

/// Has the name typed again, so that a slip of the hand costs no project.
fn confirm(context: &Context, state: &State, namespace: &Namespace) -> Result<()> {
    let dropped = refs::plan_drop_namespace(state, namespace)?;
    context.out.ask(format_args!(
        "This drops {} in {namespace}. Type the name of the namespace to go on: ",
        human::counted(dropped.versions.len() as u64, "version"),
    ));
    let typed = typed_line(context)?;
    if typed.trim() == namespace.as_str() {
        return Ok(());
    }
    let found = typed.trim();
    Err(Error::invalid(format!(
        "rm {namespace}: not confirmed, expected {:?}, found {found:?}",
        namespace.as_str()
    ))
    .hint("nothing was dropped; type the whole name, or say --yes"))
}

/// A line of standard input; a signal ends the wait for it.
fn typed_line(context: &Context) -> Result<String> {
    let (sender, typed) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = std::io::stdin().read_line(&mut line);
        // The receiver is gone when the person has lost patience.
        let _unread = sender.send(read.map(|_| line));
    });
    while !context.stop().load(Ordering::Relaxed) {
        match typed.recv_timeout(Duration::from_millis(50)) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Ok(line)) => return Ok(line),
            Ok(Err(source)) => return Err(Error::io("read", "standard input", source)),
            Err(RecvTimeoutError::Disconnected) => return Ok(String::new()),
        }
    }
    Err(Error::interrupted(
        "stopped on request; nothing was dropped",
    ))
}

impl From<Dropped> for Report {
    fn from(dropped: Dropped) -> Self {
        let shown = |(name, version)| format!("{name}@{version}");
        Self {
            dropped: dropped.versions.into_iter().map(shown).collect(),
            kept_pinned: dropped.kept.into_iter().map(shown).collect(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.dropped.len() as u64;
        write!(
            out,
            "dropped {}; `store gc` gives the space back",
            human::counted(count, "version")
        )?;
        self.kept_pinned
            .iter()
            .try_for_each(|kept| write!(out, "\nkept, since it is pinned: {kept}"))
    }
}

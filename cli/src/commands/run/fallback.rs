//! Caches that this store does not have, copied from the cluster that `--fallback` names.

use store::replicate::{Forgetful, RefStatus, ReplicateRequest, Selection, replicate};
use store::{Error, ErrorKind, Reader, RefName, Result, Root, Unwatched};

use super::caches::{Cache, is_here, newest};
use crate::context::{Context, elsewhere};
use crate::ui::names;

/// The value of `--fallback` that copies nothing.
pub(super) const EMPTY: &str = "empty";

impl Cache {
    /// Makes sure that the store has the cache, copying it from the fallback, or that the cache may begin empty.
    pub(super) fn bring_here<'s>(
        &self,
        reader: &mut Reader<'s>,
        (is_required, fallback): (bool, &str),
        context: &Context,
    ) -> Result<()> {
        if let Ok((number, version)) = reader.view().state.version(&self.name, None) {
            return match version.root {
                Root::Tree { .. } => Ok(()),
                Root::File { .. } => {
                    let name = &self.name;
                    let error = format!("{name}@{number}: is a file, and a cache is a directory");
                    Err(Error::conflict(error).hint(format!(
                        "the command was not started: `store history {}` shows who put it, and `store rm {}` \
                         makes the version before it the newest again",
                        names::quoted(name),
                        names::quoted(&format!("{name}@{number}"))
                    )))
                }
            };
        }
        let store = reader.store();
        if is_required {
            let error = Error::not_found(format!(
                "{}: is not in this store, and --require-local is given",
                self.name
            ));
            return Err(error.hint(elsewhere::where_it_is(&self.name, context)));
        }
        if fallback == EMPTY {
            return Ok(());
        }
        let away = |error: Error| {
            error.within(fallback).hint(
                "the command was not started: bring that cluster back, or begin without it with --fallback empty",
            )
        };
        let from = context.open_named(fallback, None).map_err(away)?;
        let state = from.readable_state();
        state
            .and_then(|state| elsewhere::check_log(&from, state.number))
            .map_err(away)?;
        let request = request(vec![self.name.clone()]);
        let done = match replicate(&from, store, &request, &Forgetful, &Unwatched) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.note_missing(fallback, context);
                return Ok(());
            }
            done => done?,
        };
        if let Some(stopped) = done.stopped {
            return Err(stopped);
        }
        for one in done.refs {
            match one.status {
                RefStatus::Failed(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error);
                }
                RefStatus::Failed(_) => self.note_missing(fallback, context),
                _ => context.out.note(format_args!(
                    "note: {} was brought from {fallback}",
                    self.name
                )),
            }
        }
        *reader = newest(store)?;
        Ok(())
    }

    fn note_missing(&self, fallback: &str, context: &Context) {
        let name = &self.name;
        context.out.note(format_args!(
            "note: {fallback} does not have {name} either: it begins empty, and the first save makes it here"
        ));
    }
}

fn request(names: Vec<RefName>) -> ReplicateRequest {
    ReplicateRequest::new(names.into_iter().map(Selection::Ref).collect())
}

/// Copies missing compile caches from the fallback. Refs that are missing there are skipped.
pub(super) fn bring_compiles<'s>(
    names: &[RefName],
    reader: &mut Reader<'s>,
    fallback: &str,
    context: &Context,
) -> Result<()> {
    let from = context.open_named(fallback, None)?;
    let theirs = from.readable_state()?;
    let missing = names.iter().filter(|name| !is_here(name, reader));
    let missing = missing.filter(|name| theirs.version(name, None).is_ok());
    let missing: Vec<RefName> = missing.cloned().collect();
    if missing.is_empty() {
        return Ok(());
    }
    let store = reader.store();
    let done = replicate(&from, store, &request(missing), &Forgetful, &Unwatched)?;
    *reader = newest(store)?;
    let failed = done.refs.into_iter().find_map(|one| match one.status {
        RefStatus::Failed(error) => Some(error),
        _ => None,
    });
    done.stopped.or(failed).map_or(Ok(()), Err)
}

//! What to do next, in the words of this command: its verbs, flags and variables.
//!
//! The engine chooses the remedy; this file words it.

use std::borrow::Cow;
use std::path::Path;

use store::{Note, Remedy};

use crate::ui::names::{quoted, quoted_path};

/// The text of a hint. An unknown remedy keeps the engine's plain words.
pub(crate) fn words(remedy: &Remedy) -> Cow<'static, str> {
    if let Remedy::Advice(advice) = remedy {
        return advice.clone();
    }
    damage(remedy)
        .or_else(|| log(remedy))
        .or_else(|| stores(remedy))
        .or_else(|| saves(remedy))
        .or_else(|| sources(remedy))
        .or_else(|| destinations(remedy))
        .or_else(|| pools(remedy))
        .map(Cow::Borrowed)
        .or_else(|| listings(remedy).map(Cow::Owned))
        .or_else(|| with_names(remedy).map(Cow::Owned))
        .unwrap_or_else(|| Cow::Owned(remedy.to_string()))
}

/// The text of a note.
pub(crate) fn note(note: &Note) -> String {
    match &note.remedy {
        Some(remedy) => format!("{}; {}", note.text, words(remedy)),
        None => note.text.clone(),
    }
}

fn damage(remedy: &Remedy) -> Option<&'static str> {
    Some(match remedy {
        Remedy::Verify => "run `store verify` to see what is hit",
        Remedy::VerifySource => {
            "run `store verify --read-data` at the source if the ref is still listed there"
        }
        Remedy::VerifyBothEnds => {
            "run `store verify` at both; a put of the original files heals either"
        }
        Remedy::VerifyThenRepair => "run `store verify` to see what is hit, then `store repair`",
        Remedy::VerifyThenRepairOrPut => {
            "run `store verify --read-data` to see what is hit, then `store repair`, and put the original files again if that was not enough"
        }
        Remedy::VerifyThenPut => {
            "run `store verify --read-data` to see what is hit, then `store repair`, and put the original files again"
        }
        Remedy::VerifyThenPutOrDrop => {
            "run `store verify` to see which, then put the originals again or drop the versions"
        }
        Remedy::VerifyThenMoveAway => {
            "run `store verify` to see what is hit, then move it away and run `store repair`"
        }
        Remedy::VerifyOrLeavePack => {
            "run `store verify` to see what is hit; `store gc --no-repack` leaves the pack alone"
        }
        Remedy::RemoveStrangers => {
            "objects of two stores are in one place: remove what was copied here, or restore this store from a copy; \
             if it is `format` that was copied here, put back the one of this store"
        }
        Remedy::RepairSegments => "run `store repair`: it rebuilds segments from their packs",
        _ => return None,
    })
}

fn log(remedy: &Remedy) -> Option<&'static str> {
    Some(match remedy {
        Remedy::RepairLog => {
            "run `store repair`; until then what is left can be read, and nothing is put or collected"
        }
        Remedy::RestoreLog => {
            "restore the log from a copy of the store, or see what `store repair` says; until then what is left \
             can be read, and nothing is put or collected"
        }
        Remedy::AcceptLoss => {
            "restore the log from a copy of the store; or `store repair --accept-loss` continues without what is \
             lost: the versions that these entries set, and everything after the last known entry"
        }
        _ => return None,
    })
}

fn stores(remedy: &Remedy) -> Option<&'static str> {
    Some(match remedy {
        Remedy::MakeStore => "make one with `store init`, or name another with --store",
        Remedy::PutIntoNewStore => {
            "version 1 was an interim format that newer programs do not support: make a new store with `store init` \
             and put the originals into it; the program that made this one still reads it"
        }
        Remedy::SharedStore => {
            "check owner and modes of the store's directories; a store that a group writes to is made with `store init \
             --shared`"
        }
        Remedy::SingleWriter => {
            "two writers there could lose each other's work: use an endpoint that supports If-None-Match, or `store init \
             --single-writer` if only one process ever writes"
        }
        Remedy::Credentials => {
            "no credentials were found: set the variables of the service (AWS_ACCESS_KEY_ID and \
             AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_KEY or similar), or \
             name a profile: `store cluster add NAME URL --profile P` says which one is for this URL"
        }
        Remedy::DropOrRaiseQuota => {
            "nothing was published; drop versions with `store rm`, or raise the quota with `store policy`"
        }
        Remedy::Exclusive => "run it with --exclusive when nothing else writes",
        Remedy::LongerMinAgeThanPut => {
            "give collectors a --min-age that is longer than the put; the default is 24 hours"
        }
        Remedy::LongerMinAgeThere => {
            "give collectors there a --min-age that is longer than the run; the default is 24 hours"
        }
        Remedy::FewerCollectors => {
            "run it again when fewer collectors are running; a longer --min-age leaves what others upload alone"
        }
        Remedy::LongerGrace => {
            "run it again when no collector with such a short --grace is running"
        }
        Remedy::DeleteAll => {
            "if the source is the right one, see what would be dropped with --dry-run --delete-all, then run it once with \
             --delete-all; pinned versions stay in any case"
        }
        Remedy::DropThere => "`store rm` or --delete drops it there",
        Remedy::OneWriter => {
            "two writers share this ref: bring it from one of them only, drop the version there that is not wanted, or \
             put it once more at the source, with --always"
        }
        _ => return None,
    })
}

fn saves(remedy: &Remedy) -> Option<&'static str> {
    Some(match remedy {
        Remedy::NameRefToSave => {
            "name the ref: `store save DIR REF`; if it has versions, --base N says from which one the directory was made"
        }
        Remedy::NameBase => {
            "name the version that it was made from with --base N; with --base 0, which means none, it only adds and changes; or save it to another ref"
        }
        Remedy::OtherRef => "save it to another ref: `store save DIR REF`",
        Remedy::MaterializeFirst => {
            "run `store materialize REF DIR` with its ref again, which keeps what a job changed, then save it"
        }
        Remedy::StoreSetBack => {
            "restore the newest copy of the store; else `store save DIR REF --base N` saves what is in the directory on \
             top of version N, and `store materialize --force` overrules it"
        }
        Remedy::PutInstead => "put the file: `store put PATH REF`",
        Remedy::SaveEmpty => {
            "nothing was saved: bring the files back, or give --allow-empty if nothing is meant to be left"
        }
        Remedy::OtherCacheDirectory => {
            "what is saved is noted there: set XDG_CACHE_HOME to a directory that can be written"
        }
        Remedy::MergeInstead => {
            "nothing was put; `store save` merges what was changed into the newest version"
        }
        _ => return None,
    })
}

fn sources(remedy: &Remedy) -> Option<&'static str> {
    Some(match remedy {
        Remedy::PathThenRef => {
            "name what to put first, and the ref that it becomes second: `store put PATH REF`"
        }
        Remedy::PutAtRest => {
            "put it when nobody writes to it, leave it out with --exclude, or list it with --skip-unreadable"
        }
        Remedy::ExcludeLink => "leave the symlink out with --exclude",
        Remedy::ExcludeOrKeepLink => {
            "leave it out with --exclude, or keep links as they are without --dereference"
        }
        Remedy::TakeTargets => {
            "put the directory that holds both the links and the files, for a snapshot of a hub cache that of the \
             whole repository; take what they lead to with --dereference; or keep links alone with --no-check"
        }
        Remedy::DownloadAgain => {
            "delete it and download it again, or take it as it is with --no-check"
        }
        Remedy::DownloadAgainOrExclude => {
            "download it again, leave it out with --exclude, or take it as it is with --no-check"
        }
        Remedy::KeepAbsoluteLinks => "--keep-absolute-links keeps such links as they are",
        Remedy::TakeWhatLinksLeadTo => "--dereference takes what they lead to",
        Remedy::NoProfile => "--profile none takes it as it is",
        Remedy::LetOthersRead => "--readable lets others read it",
        Remedy::AllowSecrets => "if it holds none, take it with --allow-secrets",
        Remedy::TakeWrittenThrough => {
            "materialize the tree again to get back what the pool made, or take these files as they are with \
             --take-written-through"
        }
        _ => return None,
    })
}

fn destinations(remedy: &Remedy) -> Option<&'static str> {
    Some(match remedy {
        Remedy::ExcludeOrLeaveLinks => "leave it out with --exclude, or do without --flatten",
        Remedy::FlattenLinks => "--flatten makes real files of links that lead into the ref",
        Remedy::FlattenLess => {
            "name a path inside the ref, leave links out with --exclude, or do without --flatten"
        }
        Remedy::FlattenOrExclude => {
            "replace it by what it leads to with --flatten, leave it out with --exclude, or write it with \
             --allow-outside-symlinks"
        }
        Remedy::ExcludeOrAllowOutside => {
            "leave it out with --exclude, or write it with --allow-outside-symlinks"
        }
        Remedy::MaterializeLess => {
            "materialize a path inside it, or leave it out with --exclude; `store get` has no limit of depth"
        }
        Remedy::GetInstead => {
            "a pool cannot keep files that a newer program cut: make a copy with `store get`, or use a newer program"
        }
        Remedy::OtherDestination => {
            "name another destination, like a new directory; --force and --exact do not change this"
        }
        Remedy::OtherDestinationOrMove => {
            "name another destination, or move it away first; --force and --exact do not change this"
        }
        Remedy::OtherDestinationOrReplace => {
            "name another destination; --force deletes what is there, and puts what the ref has in its place"
        }
        Remedy::OtherDestinationOrRemove => {
            "name a destination that is not there yet, or remove this one first"
        }
        Remedy::OtherDestinationOrTakeOver => {
            "name another destination, or take this one over: --force overwrites files of the same names, and keeps the \
             others"
        }
        Remedy::OtherDestinationOrOverrule => {
            "name another destination, or take this one over: --force with --exact overwrites files of the same names, \
             and deletes the others"
        }
        Remedy::Unmount => "unmount it and save again: until then, what the ref has there stays",
        Remedy::MaterializeExactly => "let `store materialize --exact` put the tree right",
        _ => return None,
    })
}

fn pools(remedy: &Remedy) -> Option<&'static str> {
    Some(match remedy {
        Remedy::EmptyPool => "name an empty or a new directory with --pool or $STORE_POOL",
        Remedy::OwnPool => {
            "a pool is for one user: name one of your own with --pool or $STORE_POOL"
        }
        Remedy::OwnPoolForFile => "name a pool of your own with --pool or $STORE_POOL",
        Remedy::PoolBehindLink => {
            "name the directory that the link leads to with --pool or $STORE_POOL, if that is yours"
        }
        Remedy::WritablePool => "name a place that you may write to with --pool or $STORE_POOL",
        Remedy::PoolBesideDestination => {
            "to share bytes, set --pool or $STORE_POOL to a directory on the same file system and mount as the \
             destination, or allow others with --link-mode auto, reflink or copy"
        }
        Remedy::OwnPoolToLink => {
            "files of other users cannot be linked (fs.protected_hardlinks): set --pool or $STORE_POOL to a pool of \
             your own, or allow others with --link-mode auto, reflink or copy"
        }
        Remedy::PoolWithHardLinks => {
            "set --pool or $STORE_POOL to a file system that has hard links, or allow others with --link-mode auto, \
             reflink or copy"
        }
        Remedy::PoolWithReflinks => {
            "reflinks need XFS or btrfs, pool and destination on the same one: set --pool or $STORE_POOL, or use \
             --link-mode auto or copy"
        }
        _ => return None,
    })
}

fn listings(remedy: &Remedy) -> Option<String> {
    Some(match remedy {
        Remedy::Undo { what } => {
            let others = match what.split_once('@') {
                Some((name, _)) => {
                    format!("; `store history {}` lists the others", quoted(name))
                }
                None => String::new(),
            };
            format!(
                "`store undo {}` brings it back, as long as its bytes are there{others}",
                quoted(what)
            )
        }
        Remedy::List => "list what there is with `store ls`".to_owned(),
        Remedy::ListBelow { place } => format!("list what there is with `store ls {}`", quoted(place)),
        Remedy::ListDirectory { place } => format!("`store ls {}` lists it", quoted(place)),
        Remedy::ListNamespaces => "`store ls` lists the namespaces".to_owned(),
        Remedy::NearNamespace { near } => {
            format!("did you mean {near}? `store ls` lists all of them")
        }
        Remedy::NoNamespaceOfRef { namespace } => {
            format!("there is no namespace {namespace}; `store ls` lists the namespaces")
        }
        Remedy::NearNamespaceOfRef { namespace, near } => format!(
            "there is no namespace {namespace}; did you mean {near}? `store ls {}` lists what is there",
            quoted(near)
        ),
        Remedy::ListVersions { name } => {
            format!("list them with `store history {}`", quoted(name))
        }
        Remedy::SpellRef => "write REF[@N][:PATH], for example project/llama-ft/imagenet@3:train/0.tar; an id is `t` \
             and at least 8 hex digits, as `store history` shows it"
            .to_owned(),
        Remedy::OtherGlobs => "a glob without a slash matches names at any depth, one with a slash whole paths from \
             the top; list what there is with `store ls -r`, or with `ls`"
            .to_owned(),
        _ => return None,
    })
}

fn with_names(remedy: &Remedy) -> Option<String> {
    Some(match remedy {
        Remedy::TookPaths { name, version } => format!(
            "{name}@{version} was made by that: while it is the newest version, `store rm {}` takes it back; when it is not, \
             `store get {}:PATH DIR` gets what was taken; `store undo REF@N` brings back what was dropped before",
            quoted(&format!("{name}@{version}")),
            quoted(&format!("{name}@{}", version.saturating_sub(1)))
        ),
        Remedy::MaterializeSaved { name, version, dir } => format!(
            "run `store materialize {} {}`, which keeps what a job changed since, then save it",
            quoted(&format!("{name}@{version}")),
            quoted(dir)
        ),
        Remedy::RemoveAgain { name } => {
            format!(
                "if nobody wants it, `store rm {}` removes it once more",
                quoted(name)
            )
        }
        Remedy::Unpin { name, number } => format!(
            "`store unpin {}` first",
            quoted(&format!("{name}@{number}"))
        ),
        Remedy::Kept { bytes } => format!(
            "{:.2} MB of it are in the store, and the next put uses them; collectors leave them alone for their --min-age (24 hours by default), `store gc --min-age 0` deletes them at once",
            *bytes as f64 / 1e6
        ),
        Remedy::PacksAway { path } => format!(
            "mount what holds {} and run it again; if the packs are lost, `store repair --accept-loss` goes on without them",
            quoted(path)
        ),
        Remedy::MoveAwayThenRepair { path } => format!(
            "move it out of the store, like `mv {} /tmp/`, then run `store repair`: it makes the object again",
            quoted(path)
        ),
        Remedy::AllowSecret { glob } => format!(
            "leave such a path out with --exclude {0}, or, if it is none, take it with --allow-secret {0}; \
             --allow-secrets takes all of them",
            quoted(glob)
        ),
        Remedy::AcceptRollback { url } => format!(
            "restore the log from a copy of the store; or `store repair --store {} --accept-loss` continues with the versions that the log has, and what was put since is lost",
            quoted(url)
        ),
        Remedy::TakeClasses { classes } => format!("--with {classes} takes them"),
        Remedy::MergeAfterAll { name, dir, made } => format!(
            "to keep both, while that is the newest: `store rm {}`, then `store save {} {}`",
            quoted(&format!("{name}@{made}")),
            quoted_path(Path::new(dir)),
            quoted(name)
        ),
        Remedy::KeepToo { what } => format!("`store put --keep {what}` keeps them"),
        Remedy::InsideMount { inside } => {
            format!("name a directory in it, like {inside}, or fill it with `store get`")
        }
        Remedy::EvictPool { pool } => format!(
            "free some space with `store pool evict`, or name a pool elsewhere than {pool} with --pool or $STORE_POOL"
        ),
        Remedy::ClosePool { pool } => format!(
            "remove that permission with `chmod go-w {}`, or name another pool with --pool or $STORE_POOL",
            quoted(pool)
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_says_it_with_its_own_words() {
        let words = |remedy: Remedy| words(&remedy).into_owned();
        assert_eq!(words("free some space".into()), "free some space");
        assert_eq!(
            words(Remedy::MakeStore),
            "make one with `store init`, or name another with --store"
        );
        let glob = "/it's here".to_owned();
        assert!(words(Remedy::AllowSecret { glob }).contains("--allow-secret '/it'\\''s here';"));
        let name = "team/a/two words".to_owned();
        assert!(
            words(Remedy::ListVersions { name }).ends_with("`store history 'team/a/two words'`")
        );
        assert!(words(Remedy::Kept { bytes: 12_345_678 }).starts_with("12.35 MB of it"));
    }
}

//! What to do about an error or a note, as data. The words of flags and verbs belong to the command.
//!
//! `Display` is plain English without those words, for programs that have none of their own.
//! Names and paths are plain text here, since this module is below those that define their types.

use std::borrow::Cow;
use std::fmt;

macro_rules! remedies {
    ($(
        $(#[$doc:meta])*
        $name:ident $({ $($(#[$about:meta])* $field:ident: $type:ty,)* })? => $text:literal;
    )*) => {
        /// What to do next about an error or a note.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Remedy {
            /// Advice that mentions nothing of a command.
            Advice(Cow<'static, str>),
            $($(#[$doc])* $name $({ $($(#[$about])* $field: $type,)* })?,)*
        }

        impl fmt::Display for Remedy {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    Self::Advice(advice) => out.write_str(advice),
                    $(Self::$name $({ $($field,)* })? => write!(out, $text),)*
                }
            }
        }
    };
}

// Damage.
remedies! {
    /// See what is damaged.
    Verify => "verify the store to see what is hit";
    /// See what is damaged at the source.
    VerifySource => "verify the source if the ref is still listed there";
    /// See what is damaged at either end; new bytes heal both.
    VerifyBothEnds => "verify both; a put of the original files heals either";
    /// See what is damaged, then mend it.
    VerifyThenRepair => "verify the store to see what is hit, then repair it";
    /// Something of another store was put here; it is in nobody's way but a collector's.
    RemoveStrangers =>
        "objects of two stores are in one place: remove what was copied here, or restore this store from a copy; if it is `format` that was copied here, put back the one of this store";
    /// See what is damaged, then mend it, or bring the bytes again.
    VerifyThenRepairOrPut =>
        "verify the store to see what is hit, then repair it, or put the original files again";
    /// See what is damaged, and bring the bytes again.
    VerifyThenPut => "verify the store to see what is hit, and put the original files again";
    /// See what is damaged, and bring the bytes again or give them up.
    VerifyThenPutOrDrop =>
        "verify the store to see what is hit, then put the originals again or drop the versions";
    /// See what is damaged; the object at fault is in the way of the repair.
    VerifyThenMoveAway =>
        "verify the store to see what is hit, then move it away and repair the store";
    /// A directory is in the way of a repair.
    MoveAwayThenRepair {
        /// The first such directory.
        path: String,
    } => "move it out of the store, like {path}, and repair the store again: an object that was there is made again";
    /// See what is damaged; a collector can do without.
    VerifyOrLeavePack => "verify the store to see what is hit; a collection can leave the pack alone";
    /// Segments are rebuilt from packs.
    RepairSegments => "repair the store: that rebuilds segments from their packs";
    /// The packs are on a file system that is not mounted, or gone.
    PacksAway {
        /// The directory of the packs.
        path: String,
    } => "mount what holds {path} and run it again; if the packs are lost, a repair that accepts the loss goes on without them";
    /// The log is mended from what is known of it.
    RepairLog =>
        "repair the store; until then what is left can be read, and nothing is put or collected";
    /// The log lost what only a copy has.
    RestoreLog =>
        "restore the log from a copy of the store, or see what a repair says; until then what is left can be \
         read, and nothing is put or collected";
    /// Go on without what the log lost.
    AcceptLoss =>
        "restore the log from a copy of the store; or a repair that accepts the loss continues without what is \
         lost: the versions that these entries set, and everything after the last known entry";
    /// Go on with a log that was rolled back.
    AcceptRollback {
        /// Where the store is.
        url: String,
    } =>
        "restore the log of {url} from a copy of the store; or a repair that accepts the loss continues with the versions that the log has, and what was put since is lost";

    // What exists.
    /// What was named was removed.
    Undo {
        /// A ref, a version or a namespace.
        what: String,
    } => "as long as its bytes are there, {what} can be brought back";
    /// Nothing that was named exists.
    List => "list what there is";
    /// The last removal took paths of a ref, and made a version without them.
    TookPaths {
        /// The ref.
        name: String,
        /// The version without the paths.
        version: u64,
    } =>
        "{name}@{version} was made by a removal of paths: drop it, if it is still the newest version, and the one before has them; what was dropped earlier comes back if it is named";
    /// Only this much of what was named exists.
    ListBelow {
        /// A namespace, or a ref with a version and a path.
        place: String,
    } => "list what there is in {place}";
    /// A file was expected, and a directory was named.
    ListDirectory {
        /// A ref with a version and a path.
        place: String,
    } => "list what is in {place}";
    /// No namespace has this name or a similar one.
    ListNamespaces => "list the namespaces";
    /// No namespace has this name, and one has a similar name.
    NearNamespace {
        /// The namespace with the similar name.
        near: String,
    } => "did you mean {near}? A listing has all of them";
    /// The namespace of a ref does not exist.
    NoNamespaceOfRef {
        /// The namespace that was named.
        namespace: String,
    } => "there is no namespace {namespace}; list the namespaces";
    /// The namespace of a ref does not exist, and one with a similar name does.
    NearNamespaceOfRef {
        /// The namespace that was named.
        namespace: String,
        /// The namespace with the similar name.
        near: String,
    } => "there is no namespace {namespace}; did you mean {near}? Its listing says what is there";
    /// The ref has no such version.
    ListVersions {
        /// The ref.
        name: String,
    } => "see which versions {name} has";
    /// The text is no valid ref, version or path.
    SpellRef =>
        "write REF[@N][:PATH], for example project/llama-ft/imagenet@3:train/0.tar; an id is `t` and at least 8 \
         hex digits";
    /// A pin keeps a version.
    Unpin {
        /// The ref.
        name: String,
        /// The version.
        number: u64,
    } => "take the pin off {name}@{number} first";
    /// The globs leave nothing.
    OtherGlobs =>
        "a glob without a slash matches names at any depth, one with a slash whole paths from the top; list what \
         there is";

    // Stores.
    /// There is no store.
    MakeStore => "make a store there, or name another";
    /// The user may not write to the directory of a store.
    SharedStore =>
        "check owner and modes of the store's directories; a store that a group writes to is made as a shared one";
    /// The endpoint cannot keep two writers apart.
    SingleWriter =>
        "two writers there could lose each other's work: use an endpoint that supports If-None-Match, or make a \
         store of a single writer if only one process ever writes";
    /// The service wants credentials, and none are configured.
    Credentials =>
        "no credentials were found: give those of the service, or a profile that has them, with the store";
    /// A quota is used up.
    DropOrRaiseQuota => "nothing was published; drop versions, or raise the quota";

    /// No newer program supports a store of an interim format.
    PutIntoNewStore =>
        "version 1 was an interim format that newer programs do not support: make a new store and put the originals \
         into it; the program that made this one still reads it";

    // Saves.
    /// Nothing says which ref a directory belongs to.
    NameRefToSave => "name the ref to save it to";
    /// Nothing says which version of the ref a directory was made from.
    NameBase =>
        "say from which version it was made, or from none: then it only adds and changes; or save it to another ref";
    /// A save made a ref again that somebody had removed.
    RemoveAgain {
        /// The ref.
        name: String,
    } => "remove {name} once more if nobody wants it";
    /// The directory cannot be saved to this ref.
    OtherRef => "save it to another ref";
    /// The store is older than the directory that was made from it.
    StoreSetBack => "restore the newest copy of the store, or say what the directory was made from";
    /// The tree is a mix of versions.
    MaterializeFirst => "materialize the ref there again, which keeps what a job changed; then save it";
    /// The note of what was saved of a tree is lost.
    MaterializeSaved {
        /// The ref.
        name: String,
        /// The version that was saved.
        version: u64,
        /// The tree.
        dir: String,
    } => "materialize {name}@{version} in {dir}, which keeps what a job changed since; then save it";
    /// Only directories are saved.
    PutInstead => "put the file";
    /// All files of the directory are gone.
    SaveEmpty => "nothing was saved: bring the files back, or say that nothing is meant to be left";
    /// This host cannot write down what it saves.
    OtherCacheDirectory => "what is saved is noted there: let it be written to, or name another cache directory";
    /// A precondition failed.
    MergeInstead => "nothing was put; a save merges what was changed into the newest version";
    /// A put took the place of versions that its source was not made from.
    MergeAfterAll {
        /// The ref.
        name: String,
        /// The source.
        dir: String,
        /// The version that the put made.
        made: u64,
    } => "to keep both, while {name}@{made} is the newest: drop it, and save {dir} instead";

    // Collectors and transfers.
    /// The collector of a single writer's store must run alone.
    Exclusive => "run it exclusively when nothing else writes";
    /// Collectors delete what a put still works on.
    LongerMinAgeThanPut =>
        "give collectors a minimum age that is longer than the put; the default is 24 hours";
    /// Collectors delete what a transfer still works on.
    LongerMinAgeThere =>
        "give collectors there a minimum age that is longer than the run; the default is 24 hours";
    /// Collectors are in each other's way.
    FewerCollectors =>
        "run it again when fewer collectors are running; a longer minimum age leaves what others upload alone";
    /// Collectors delete what readers still need.
    LongerGrace => "run it again when no collector with such a short grace is running";
    /// What a put had stored before it was stopped.
    Kept {
        /// How many bytes.
        bytes: u64,
    } =>
        "{bytes} bytes of it are in the store, and the next put uses them; collectors leave them alone for their minimum age";
    /// The source lacks much of what the destination has.
    DeleteAll =>
        "if the source is the right one, see in a dry run what would be dropped, then let it delete all once; pinned \
         versions stay in any case";
    /// The source and the destination both got versions of their own.
    OneWriter =>
        "two writers share this ref: bring it from one of them only, drop the version there that is not wanted, or \
         put it once more at the source, unchanged as it is";

    /// A later version at the destination is in the way of the source's newest.
    DropThere => "drop it there if it is not wanted";

    // What is put.
    /// The arguments are not a path and a ref.
    PathThenRef => "name what to put first, and the ref that it becomes second";
    /// A file changes continually.
    PutAtRest =>
        "put it when nobody writes to it, exclude it, or have it listed with what cannot be read";
    /// A directory contains itself through a symlink.
    ExcludeLink => "exclude the symlink";
    /// A symlink cannot be followed.
    ExcludeOrKeepLink => "exclude it, or keep links as they are";
    /// Nearly all files are links to outside.
    TakeTargets =>
        "put the directory that holds both the links and the files, for a snapshot of a hub cache that of the whole \
         repository; take what they lead to; or keep links alone, unchecked";
    /// A file of a hub's client does not match its name.
    DownloadAgain => "delete it and download it again, or take it as it is, unchecked";
    /// The files of a hub's client do not match each other.
    DownloadAgainOrExclude => "download it again, exclude it, or take it as it is, unchecked";
    /// A file looks like it contains credentials.
    AllowSecret {
        /// A glob that matches only the first such path.
        glob: String,
    } => "exclude such a path ({glob}), or, if it holds none, allow it";
    /// The single file of the put looks like it contains credentials.
    AllowSecrets => "if it holds none, allow it";
    /// An empty file system hides what a tree had.
    Unmount => "unmount it and save again: until then, what the ref has there stays";
    /// Files of a materialized tree were written through shared links.
    TakeWrittenThrough =>
        "materialize the tree again to get back what the pool made, or take these files as they are";

    /// The version before kept more beside its tree.
    KeepToo {
        /// What, separated by commas.
        what: String,
    } => "it can be kept: {what}";
    /// Absolute links were made relative.
    KeepAbsoluteLinks => "such links can be kept as they are";
    /// Links that lead outside are kept as links.
    TakeWhatLinksLeadTo => "what they lead to can be taken instead";
    /// What a profile leaves out.
    TakeClasses {
        /// Names of classes of files, separated by commas.
        classes: String,
    } => "they can be taken, as the classes {classes}";
    /// A profile was chosen because the source looks like it.
    NoProfile => "without a profile it is taken as it is";
    /// What is or was written out can only be accessed by its user.
    LetOthersRead => "others can be allowed to read it";

    // Links in what is written out, and its depth.
    /// No symlink leads outside of the ref.
    FlattenLinks => "links that lead into the ref can become real files";
    /// A symlink leads to nothing that could replace it.
    ExcludeOrLeaveLinks => "exclude it, or do without flattening";
    /// Replacing symlinks would copy far too much.
    FlattenLess => "name a path inside the ref, exclude links, or do without flattening";
    /// A symlink leads out of the destination, to a path in the ref.
    FlattenOrExclude =>
        "replace it by what it leads to, exclude it, or allow symlinks that lead outside";
    /// A symlink leads out of the destination.
    ExcludeOrAllowOutside => "exclude it, or allow symlinks that lead outside";
    /// A tree is nested too deep for a pool.
    MaterializeLess =>
        "materialize a path inside it, or exclude it; a get has no limit of depth";

    /// A newer program cut the files of the store in a way that a pool cannot reproduce.
    GetInstead =>
        "a pool cannot keep files that a newer program cut: make a copy with a get, or use a newer program";

    // Destinations.
    /// Nothing may replace what is at the destination.
    OtherDestination => "name another destination, like a new directory; nothing overrides this";
    /// Nothing may replace what is at the destination.
    OtherDestinationOrMove =>
        "name another destination, or move it away first; nothing overrides this";
    /// The destination is no directory, or not the kind of thing that the ref is.
    OtherDestinationOrReplace =>
        "name another destination, or replace this one by force, which deletes what is there";
    /// The destination is a directory that no pool made.
    OtherDestinationOrTakeOver =>
        "name another destination, or take this one over by force, which overwrites files of the same names and keeps \
         the others";
    /// The destination is a directory that no pool made, and is to become exactly what the ref has.
    OtherDestinationOrOverrule =>
        "name another destination, or take this one over by force, which deletes what the ref does not have";
    /// The destination was there before a tree that goes with its process.
    OtherDestinationOrRemove =>
        "name a destination that is not there yet, or remove this one first";
    /// The destination is a mount.
    InsideMount {
        /// A path in the mount.
        inside: String,
    } => "name a directory in it, like {inside}, or fill it with a get";
    /// The pool's record of a tree is damaged.
    MaterializeExactly => "materialize the tree again, exactly: that puts it right";

    // Pools.
    /// The file system of a pool is full.
    EvictPool {
        /// Where the pool is.
        pool: String,
    } => "free some space by evicting from the pool, or name one elsewhere than {pool}";
    /// The directory is in use for something else.
    EmptyPool => "name an empty or a new directory for the pool";
    /// The pool belongs to somebody else.
    OwnPool => "a pool is for one user: name one of your own";
    /// A file of the pool belongs to somebody else.
    OwnPoolForFile => "name a pool of your own";
    /// Others may write to the pool.
    ClosePool {
        /// Where the pool is.
        pool: String,
    } => "remove that permission with `chmod go-w {pool}`, or name another pool";
    /// A symlink in the path of the pool cannot be trusted.
    PoolBehindLink => "name the directory that the link leads to as the pool, if that is yours";
    /// The pool cannot be opened.
    WritablePool => "name a pool that you may write to";
    /// The pool is on another file system.
    PoolBesideDestination =>
        "to share bytes, have the pool on the same file system and mount as the destination, or allow another link \
         mode";
    /// The system does not allow links to files of other users.
    OwnPoolToLink =>
        "files of other users cannot be linked (fs.protected_hardlinks): take a pool of your own, or allow another \
         link mode";
    /// The file system of the pool has no hard links.
    PoolWithHardLinks =>
        "have the pool on a file system that has hard links, or allow another link mode";
    /// The file system of the pool has no reflinks.
    PoolWithReflinks =>
        "reflinks need XFS or btrfs, pool and destination on the same one: take another pool or link mode";
}

/// A fact that is worth knowing and that ended nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Note {
    /// The fact.
    pub text: String,
    /// What can be done about it.
    pub remedy: Option<Remedy>,
    /// Whether the work of others is concerned, so that it is to be told even if notes are not wanted.
    pub is_warning: bool,
}

impl Note {
    /// Makes a note with a remedy.
    pub(crate) fn with(text: impl Into<String>, remedy: impl Into<Remedy>) -> Self {
        Self {
            text: text.into(),
            remedy: Some(remedy.into()),
            is_warning: false,
        }
    }

    /// Makes it a warning.
    pub(crate) fn warning(self) -> Self {
        Self {
            is_warning: true,
            ..self
        }
    }
}

impl From<String> for Note {
    fn from(text: String) -> Self {
        Self {
            text,
            remedy: None,
            is_warning: false,
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)?;
        match &self.remedy {
            Some(remedy) => write!(out, "; {remedy}"),
            None => Ok(()),
        }
    }
}

impl Remedy {
    /// What was removed can be brought back.
    pub(crate) fn undo(what: impl fmt::Display) -> Self {
        let what = what.to_string();
        Self::Undo { what }
    }
}

impl From<&'static str> for Remedy {
    fn from(advice: &'static str) -> Self {
        Self::Advice(advice.into())
    }
}

impl From<String> for Remedy {
    fn from(advice: String) -> Self {
        Self::Advice(advice.into())
    }
}

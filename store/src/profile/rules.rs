//! What a path of a Hugging Face cache is, by its names alone. Pure.
//!
//! Names are judged by the directory that they are in: an HF_HOME holds `hub/`, a hub holds repositories, a repository
//! holds `blobs/`, `refs/`, `snapshots/`, `trees/` and `.no_exist/`. The authors of a repository chose the names of
//! files in a snapshot, so no name there means a lock or a secret: `poetry.lock` belongs to the repository. Where no
//! client makes locks, a lock is somebody's file as well.

use super::Class;

/// What kind of directory the root of a put is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RootKind {
    /// An HF_HOME with `hub/`, `datasets/`, `token` and so on.
    Home,
    /// A hub cache with one directory per repository.
    Hub,
    /// One repository of a hub cache.
    Repo,
    /// A directory that holds an HF_HOME named `huggingface`, like `~/.cache`.
    Above,
}

/// What a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HubPlace {
    /// The directory of one repository.
    Repo,
    /// A file named by the hash of its bytes.
    Payload,
    /// A file that holds the commit of a branch or tag.
    Ref,
    /// `snapshots/<commit>`.
    Snapshot,
    /// An entry in a snapshot.
    SnapshotEntry,
    /// `trees/<commit>.json`: what a snapshot should hold.
    Listing,
    /// Anything else in a cache.
    Other,
    /// Anything outside of the caches.
    Foreign,
}

/// Why something is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Out {
    /// It holds credentials.
    Secret,
    /// It is a lock.
    Lock,
    /// A download or a build did not finish it.
    Unfinished,
    /// It is a log, a mark or a cache that means nothing on another host.
    MachineState,
    /// It is the store that repositories share. Each repository gets its own files instead.
    Shared,
    /// It is taken only on request.
    OptIn(Class),
}

/// What happens to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Keep(HubPlace),
    Out(Out),
}

/// The kind of directory that a name is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Above,
    Home,
    Hub,
    Datasets,
    Repo,
    Payloads,
    Refs,
    Snapshots,
    Snapshot,
    Missing,
    Listings,
    /// What libraries keep beside repositories: they make locks and unfinished files there.
    Client,
    /// Anything else in an HF_HOME. No client makes files there: only secrets and directories of locks are left out.
    Taken,
}

/// Judges `path`, relative to a root of this kind. None of its parent directories may be left out.
pub(super) fn judge(root: RootKind, path: &[u8], is_dir: bool) -> Verdict {
    let mut room = room_of(root);
    let mut names = path.split(|byte| *byte == b'/').peekable();
    while let Some(name) = names.next() {
        if names.peek().is_none() {
            return last(room, name, is_dir);
        }
        room = below(room, name);
    }
    Verdict::Keep(HubPlace::Other)
}

/// Whether `name` is that of a repository's directory, like `models--org--name`.
pub(super) fn is_repo(name: &[u8]) -> bool {
    let kinds: [&[u8]; 4] = [b"models--", b"datasets--", b"spaces--", b"kernels--"];
    kinds
        .iter()
        .any(|kind| name.len() > kind.len() && name.starts_with(kind))
}

/// Whether `path` is where a client keeps its login, of which there is no only copy.
pub(super) fn is_login(root: RootKind, path: &[u8]) -> bool {
    let path = match root {
        RootKind::Home => path,
        RootKind::Above => path.strip_prefix(b"huggingface/").unwrap_or_default(),
        RootKind::Hub | RootKind::Repo => return false,
    };
    [&b"token"[..], b"stored_tokens"].contains(&path)
}

/// Whether tools keep credentials in files with this name, in whatever directory.
pub(super) fn is_secret(name: &[u8]) -> bool {
    let names: [&[u8]; 4] = [b".netrc", b".git-credentials", b"munge.key", b".ssh"];
    names.contains(&name)
}

/// Whether `text` is 40 lower-case hexadecimal digits.
pub(super) fn is_commit(text: &[u8]) -> bool {
    is_hex(text, 40)
}

pub(super) fn is_hex(text: &[u8], digits: usize) -> bool {
    text.len() == digits
        && text
            .iter()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn room_of(root: RootKind) -> Room {
    match root {
        RootKind::Home => Room::Home,
        RootKind::Hub => Room::Hub,
        RootKind::Repo => Room::Repo,
        RootKind::Above => Room::Above,
    }
}

fn below(room: Room, name: &[u8]) -> Room {
    match (room, name) {
        (Room::Repo, b"blobs") => Room::Payloads,
        (Room::Repo, b"refs") => Room::Refs,
        (Room::Repo, b"snapshots") => Room::Snapshots,
        (Room::Repo, b".no_exist") => Room::Missing,
        (Room::Repo, b"trees") => Room::Listings,
        (Room::Snapshots, _) => Room::Snapshot,
        (Room::Home, b"hub") => Room::Hub,
        (Room::Home, b"datasets") => Room::Datasets,
        (Room::Above | Room::Home | Room::Hub | Room::Client | Room::Taken, _) if is_repo(name) => {
            Room::Repo
        }
        (Room::Above, b"huggingface") => Room::Home,
        (Room::Home, _) if is_of_client(name) => Room::Client,
        (Room::Home, _) => Room::Taken,
        (same, _) => same,
    }
}

fn last(room: Room, name: &[u8], is_dir: bool) -> Verdict {
    let out = match room {
        // The authors of the repository chose these names. Links are checked elsewhere.
        Room::Snapshots | Room::Snapshot | Room::Missing => None,
        Room::Above => (is_secret(name) || name == b"stored_tokens").then_some(Out::Secret),
        Room::Home => secret(name)
            .or_else(|| lock_dir(name, is_dir))
            .or_else(|| home(name)),
        Room::Taken => secret(name).or_else(|| lock_dir(name, is_dir)),
        Room::Hub => secret(name)
            .or_else(|| unfinished(name, is_dir))
            .or_else(|| (is_dir && name == b"blobs").then_some(Out::Shared)),
        Room::Datasets => secret(name)
            .or_else(|| unfinished(name, is_dir))
            .or_else(|| datasets(name, is_dir)),
        Room::Payloads => unfinished(name, is_dir).or_else(|| payload(name)),
        Room::Refs => ref_tmp(name),
        Room::Repo | Room::Listings | Room::Client => {
            secret(name).or_else(|| unfinished(name, is_dir))
        }
    };
    out.map_or_else(|| Verdict::Keep(place(room, name, is_dir)), Verdict::Out)
}

fn place(room: Room, name: &[u8], is_dir: bool) -> HubPlace {
    match (room, is_dir) {
        (Room::Above | Room::Home | Room::Hub | Room::Client | Room::Taken, true)
            if is_repo(name) =>
        {
            HubPlace::Repo
        }
        (Room::Above, _) => HubPlace::Foreign,
        (Room::Payloads, false) => HubPlace::Payload,
        (Room::Refs, false) => HubPlace::Ref,
        (Room::Snapshots, true) => HubPlace::Snapshot,
        (Room::Snapshot, false) => HubPlace::SnapshotEntry,
        (Room::Listings, false) => match name.strip_suffix(b".json") {
            Some(commit) if is_commit(commit) => HubPlace::Listing,
            _ => HubPlace::Other,
        },
        _ => HubPlace::Other,
    }
}

/// `token` and `stored_tokens` are in an HF_HOME, or wherever a variable of the environment put them.
fn secret(name: &[u8]) -> Option<Out> {
    (is_secret(name) || name == b"token" || name == b"stored_tokens").then_some(Out::Secret)
}

fn lock_dir(name: &[u8], is_dir: bool) -> Option<Out> {
    (is_dir && name == b".locks").then_some(Out::Lock)
}

/// What a client makes where it works. Its `.lock` files are empty, which the caller has to check.
fn unfinished(name: &[u8], is_dir: bool) -> Option<Out> {
    let lock = !is_dir && (name.ends_with(b".lock") || name.ends_with(b".lock.soft"));
    let partial = name.ends_with(b".incomplete") || (!is_dir && name.ends_with(b".tmp"));
    lock_dir(name, is_dir)
        .or_else(|| lock.then_some(Out::Lock))
        .or_else(|| partial.then_some(Out::Unfinished))
}

fn home(name: &[u8]) -> Option<Out> {
    let is_state = name == b"xet"
        || name == b".agent_harnesses.json"
        || (name.starts_with(b".check_for_") && name.ends_with(b"_done"));
    is_state
        .then_some(Out::MachineState)
        .or_else(|| class_of(name).map(Out::OptIn))
}

/// The class that is taken only on request, by the name of its directory in an HF_HOME.
fn class_of(name: &[u8]) -> Option<Class> {
    Class::ALL
        .into_iter()
        .find(|class| class.as_str().as_bytes() == name)
}

/// Whether this directory of an HF_HOME is a library's: `metrics`, `evaluate` and `transformers` are those of older ones.
fn is_of_client(name: &[u8]) -> bool {
    class_of(name).is_some() || [&b"metrics"[..], b"evaluate", b"transformers"].contains(&name)
}

/// Leaves out downloads, and names that `tempfile` makes: `tmp` and eight characters.
fn datasets(name: &[u8], is_dir: bool) -> Option<Out> {
    if is_dir && name == b"downloads" {
        return Some(Out::OptIn(Class::Downloads));
    }
    let is_tmp = name.len() == 11
        && name.starts_with(b"tmp")
        && name
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    (!is_dir && is_tmp).then_some(Out::Unfinished)
}

fn payload(name: &[u8]) -> Option<Out> {
    let is_hidden = name.starts_with(b".")
        && [&b".shared"[..], b".new", b".old"]
            .iter()
            .any(|end| name.ends_with(end));
    (is_hidden || name.starts_with(b"tmp_")).then_some(Out::Unfinished)
}

/// `<name>.<8 hex>.tmp` is unfinished. A branch may be called `x.tmp`, but hardly that.
fn ref_tmp(name: &[u8]) -> Option<Out> {
    let stem = name.strip_suffix(b".tmp")?;
    let unique = stem.rsplit(|byte| *byte == b'.').next()?;
    (is_hex(unique, 8) && unique.len() < stem.len()).then_some(Out::Unfinished)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    /// `C` stands for a commit; a path that ends in `/` is a directory.
    fn judged(root: RootKind, path: &str) -> Verdict {
        let path = path.replace('C', COMMIT);
        let is_dir = path.ends_with('/');
        judge(root, path.trim_end_matches('/').as_bytes(), is_dir)
    }

    #[test]
    fn each_class_stays_out_of_an_hf_home() {
        let cases = [
            ("token", Out::Secret),
            ("stored_tokens", Out::Secret),
            ("sub/.netrc", Out::Secret),
            (".git-credentials", Out::Secret),
            ("munge.key", Out::Secret),
            (".ssh/", Out::Secret),
            ("hub/token", Out::Secret),
            ("hub/.locks/", Out::Lock),
            ("datasets/_root_x_builder.lock", Out::Lock),
            ("datasets/x/y.lock.soft", Out::Lock),
            ("hub/models--a--b/blobs/ab12.incomplete", Out::Unfinished),
            (
                "hub/models--a--b/blobs/ab12.deadbeef.incomplete",
                Out::Unfinished,
            ),
            (
                "hub/models--a--b/blobs/.ab12.deadbeef.shared",
                Out::Unfinished,
            ),
            ("hub/models--a--b/blobs/.ab12.new", Out::Unfinished),
            ("hub/models--a--b/blobs/tmp_x", Out::Unfinished),
            ("hub/models--a--b/blobs/ab12.lock", Out::Lock),
            ("hub/models--a--b/refs/main.deadbeef.tmp", Out::Unfinished),
            ("hub/models--a--b/trees/C.json.x1.tmp", Out::Unfinished),
            ("datasets/a/default/0.0.0/hash.incomplete/", Out::Unfinished),
            ("datasets/a/default/0.0.0/hash/tmpab_12xy9", Out::Unfinished),
            ("xet/", Out::MachineState),
            (".check_for_update_done", Out::MachineState),
            (".check_for_skill_update_done", Out::MachineState),
            (".agent_harnesses.json", Out::MachineState),
            ("hub/blobs/", Out::Shared),
            ("modules/", Out::OptIn(Class::Modules)),
            ("trackio/", Out::OptIn(Class::Trackio)),
            ("accelerate/", Out::OptIn(Class::Accelerate)),
            ("assets/", Out::OptIn(Class::Assets)),
            ("downloads/", Out::OptIn(Class::Downloads)),
            ("datasets/downloads/", Out::OptIn(Class::Downloads)),
        ];
        for (path, out) in cases {
            assert_eq!(judged(RootKind::Home, path), Verdict::Out(out), "{path}");
        }
    }

    #[test]
    fn where_no_client_works_a_lock_is_somebodys_file() {
        for path in [
            "own.lock",
            "own.incomplete",
            "repo/Cargo.lock",
            "repo/sub/table.lock.soft",
            "repo/data.incomplete/",
            "repo/notes.tmp",
        ] {
            let kept = Verdict::Keep(HubPlace::Other);
            assert_eq!(judged(RootKind::Home, path), kept, "{path}");
        }
        for (path, out) in [
            ("repo/.locks/", Out::Lock),
            ("repo/models--a--b/blobs/12.lock", Out::Lock),
            ("metrics/glue/default.lock", Out::Lock),
            ("assets/x/y.incomplete", Out::Unfinished),
        ] {
            assert_eq!(judged(RootKind::Home, path), Verdict::Out(out), "{path}");
        }
    }

    #[test]
    fn a_login_is_where_its_client_looks() {
        assert!(is_login(RootKind::Home, b"token") && is_login(RootKind::Home, b"stored_tokens"));
        assert!(is_login(RootKind::Above, b"huggingface/token"));
        for (root, path) in [
            (RootKind::Home, &b"repo/token"[..]),
            (RootKind::Above, b"token"),
            (RootKind::Hub, b"token"),
        ] {
            assert!(!is_login(root, path), "{root:?}");
        }
    }

    #[test]
    fn what_belongs_to_a_repository_is_kept_by_its_place() {
        let cases = [
            ("hub/models--a--b/", HubPlace::Repo),
            ("models--a/", HubPlace::Repo),
            ("hub/models--a--b/blobs/", HubPlace::Other),
            ("hub/models--a--b/blobs/ab12", HubPlace::Payload),
            ("hub/models--a--b/refs/main", HubPlace::Ref),
            ("hub/models--a--b/refs/refs/pr/1", HubPlace::Ref),
            ("hub/models--a--b/refs/x.tmp", HubPlace::Ref),
            ("hub/models--a--b/snapshots/C/", HubPlace::Snapshot),
            (
                "hub/models--a--b/snapshots/C/token",
                HubPlace::SnapshotEntry,
            ),
            (
                "hub/models--a--b/snapshots/C/sub/poetry.lock",
                HubPlace::SnapshotEntry,
            ),
            ("hub/models--a--b/snapshots/C/.locks/", HubPlace::Other),
            ("hub/models--a--b/.no_exist/C/", HubPlace::Other),
            ("hub/models--a--b/.no_exist/C/x.lock", HubPlace::Other),
            ("hub/models--a--b/trees/C.json", HubPlace::Listing),
            ("hub/CACHEDIR.TAG", HubPlace::Other),
            ("optimum_neuron_custom_cache", HubPlace::Other),
            (
                "datasets/a/default/0.0.0/h/cache-12_00000_of_00004.arrow",
                HubPlace::Other,
            ),
            ("modules/transformers_modules/", HubPlace::Other),
        ];
        for (path, place) in cases {
            assert_eq!(judged(RootKind::Home, path), Verdict::Keep(place), "{path}");
        }
    }

    #[test]
    fn the_kind_of_the_root_shifts_the_rules() {
        let keep = |root, path, place| {
            assert_eq!(judged(root, path), Verdict::Keep(place), "{root:?} {path}");
        };
        keep(RootKind::Hub, "models--a/refs/main", HubPlace::Ref);
        keep(RootKind::Repo, "refs/main", HubPlace::Ref);
        keep(
            RootKind::Above,
            "huggingface/hub/spaces--a/blobs/12",
            HubPlace::Payload,
        );
        keep(RootKind::Above, "pip/x.lock", HubPlace::Foreign);
        keep(RootKind::Above, "xet/token", HubPlace::Foreign);
        assert_eq!(
            judged(RootKind::Above, "huggingface/token"),
            Verdict::Out(Out::Secret)
        );
        assert_eq!(judged(RootKind::Hub, "blobs/"), Verdict::Out(Out::Shared));
    }
}

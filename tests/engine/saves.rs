//! Saves: changes of several jobs to trees of one version are merged in its ref, and clashes are named.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use store::remote::{Objects, Prune};
use store::{
    Case, ErrorKind, GetRequest, MaterializeRequest, Onto, Pool, PoolLimits, PutReport, PutRequest,
    Result, Store, Unwatched, get, materialize, put,
};
use support::trees::write;
use tempfile::TempDir;

use crate::stores::{host, name, noise, spec};

pub(crate) const REF: &str = "project/demo/cache";

/// A store, a pool, and the directories of jobs.
pub(crate) struct Site {
    dir: TempDir,
    pub(crate) remote: Arc<dyn Prune>,
    pub(crate) pool: Arc<Pool>,
}

impl Site {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let remote: Arc<dyn Prune> = Arc::new(Objects::memory());
        Store::init(remote.clone(), host(dir.path())).unwrap();
        let pool = Pool::open(&dir.path().join("pool"), PoolLimits::default()).unwrap();
        Self {
            remote,
            pool: Arc::new(pool),
            dir,
        }
    }

    /// A site whose first version has these files.
    pub(crate) fn with(files: &[(&str, &str)]) -> Self {
        let site = Self::new();
        for (path, text) in files {
            write(&site.path("first").join(path), text.as_bytes());
        }
        put(
            &site.store(),
            &PutRequest::new(site.path("first"), name(REF)),
            &Unwatched,
        )
        .unwrap();
        site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn store(&self) -> Store {
        Store::open(self.remote.clone(), host(self.dir.path())).unwrap()
    }

    /// Makes a tree of the newest version for a job.
    pub(crate) fn job(&self, name: &str) -> PathBuf {
        let request = MaterializeRequest {
            copy_below_bytes: 0,
            ..MaterializeRequest::new(spec(REF), self.path(name))
        };
        materialize(&self.store(), &self.pool, &request, &Unwatched).unwrap();
        self.path(name)
    }

    pub(crate) fn request(&self, dir: &Path) -> PutRequest {
        PutRequest {
            pools: vec![self.pool.clone()],
            ..PutRequest::save(dir, name(REF))
        }
    }

    pub(crate) fn save(&self, dir: &Path) -> PutReport {
        self.try_save(&self.request(dir)).unwrap()
    }

    pub(crate) fn try_save(&self, request: &PutRequest) -> Result<PutReport> {
        put(&self.store(), request, &Unwatched)
    }

    /// The content of the newest version: `path=text`, or `path/` for an empty directory.
    pub(crate) fn newest(&self) -> Vec<String> {
        let out = tempfile::tempdir_in(self.dir.path()).unwrap();
        let to = out.path().join("out");
        get(&self.store(), &GetRequest::new(spec(REF), &to), &Unwatched).unwrap();
        self.files(&to)
    }

    /// The content of a directory in the same form.
    pub(crate) fn files(&self, dir: &Path) -> Vec<String> {
        let mut found = Vec::new();
        list(dir, dir, &mut found);
        found.sort();
        found
    }

    fn version(&self) -> store::Version {
        let state = self.store().state().unwrap();
        state.version(&name(REF), None).unwrap().1.clone()
    }
}

fn list(root: &Path, dir: &Path, found: &mut Vec<String>) {
    let entries: Vec<_> = fs::read_dir(dir).unwrap().map(Result::unwrap).collect();
    let shown = |path: &Path| path.strip_prefix(root).unwrap().display().to_string();
    if entries.is_empty() && dir != root {
        found.push(format!("{}/", shown(dir)));
    }
    for entry in entries {
        let path = entry.path();
        if path.is_dir() {
            list(root, &path, found);
        } else {
            let text = fs::read_to_string(&path).unwrap();
            found.push(format!("{}={text}", shown(&path)));
        }
    }
}

/// Replaces a file, as programs do that do not write in place.
pub(crate) fn replace(path: &Path, text: &str) {
    let _was = fs::remove_file(path);
    write(path, text.as_bytes());
}

pub(crate) fn clashes(report: &PutReport) -> Vec<(String, Case)> {
    let clashes = &report.saved.as_ref().unwrap().clashes;
    let told = |path: &[u8]| String::from_utf8(path.to_vec()).unwrap();
    clashes
        .iter()
        .map(|clash| (told(&clash.path), clash.case))
        .collect()
}

#[test]
fn eight_jobs_that_end_at_once_all_keep_what_they_added() {
    let site = Site::with(&[("shared/base", "base")]);
    let jobs: Vec<PathBuf> = (0..8).map(|job| site.job(&format!("job-{job}"))).collect();
    for (number, dir) in jobs.iter().enumerate() {
        for file in 0..1000 {
            let path = dir.join(format!("shared/{}/{number}-{file}", file % 10));
            write(&path, format!("{number} {file}").as_bytes());
        }
    }
    std::thread::scope(|scope| {
        for dir in &jobs {
            scope.spawn(|| {
                let report = site.save(dir);
                assert_eq!(clashes(&report), []);
                assert_eq!(report.saved.unwrap().counts.added, 1000 + 10);
            });
        }
    });
    let found = site.newest();
    assert_eq!(found.len(), 8001);
    for number in 0..8 {
        for file in 0..1000 {
            let line = format!("shared/{}/{number}-{file}={number} {file}", file % 10);
            assert!(found.binary_search(&line).is_ok(), "{line}");
        }
    }
    let state = site.store().state().unwrap();
    assert_eq!(state.number, 9, "one entry each");
    assert_eq!(state.version(&name(REF), None).unwrap().0, 9);
}

#[test]
fn what_is_linked_and_unchanged_is_not_read() {
    let site = Site::new();
    for number in 0..4 {
        write(
            &site.path(&format!("first/{number}")),
            &noise(number, 400_000),
        );
    }
    put(
        &site.store(),
        &PutRequest::new(site.path("first"), name(REF)),
        &Unwatched,
    )
    .unwrap();
    let dir = site.job("job");
    write(&dir.join("new"), &noise(9, 50_000));
    fs::rename(dir.join("1"), dir.join("moved")).unwrap();
    let report = site.save(&dir);
    assert_eq!((report.read_bytes, report.files), (450_000, 5));
    let counts = report.saved.unwrap().counts;
    assert_eq!((counts.added, counts.changed, counts.removed), (2, 0, 1));
    // The same for a whole tree that was seen before.
    assert_eq!(site.save(&dir).version, Some(2));
    let request = PutRequest {
        read_all: true,
        ..site.request(&dir)
    };
    assert_eq!(site.try_save(&request).unwrap().read_bytes, 1_650_000);
}

#[test]
fn a_linked_file_that_was_written_to_is_left_out_and_named() {
    let site = Site::with(&[("a", "as the pool made it")]);
    let dir = site.job("job");
    fs::set_permissions(dir.join("a"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(dir.join("a"), "written through").unwrap();
    write(&dir.join("new"), b"new");
    let report = site.save(&dir);
    let [(path, error)] = &report.skipped[..] else {
        panic!("{report:?}");
    };
    assert_eq!((path, error.kind()), (&dir.join("a"), ErrorKind::Corrupt));
    assert_eq!(site.newest(), ["a=as the pool made it", "new=new"]);
    let taken = PutRequest {
        take_written_through: true,
        ..site.request(&dir)
    };
    site.try_save(&taken).unwrap();
    assert_eq!(site.newest(), ["a=written through", "new=new"]);
}

#[test]
fn each_way_to_clash_has_an_outcome_and_a_name() {
    let files = [
        "both",
        "mine",
        "theirs",
        "gone-here",
        "gone-there",
        "kind",
        "gone",
    ];
    let files: Vec<_> = files.iter().map(|path| (*path, "base")).collect();
    let site = Site::with(&files);
    let (ours, theirs) = (site.job("ours"), site.job("theirs"));
    for path in ["both", "theirs", "gone-here", "kind"] {
        replace(&theirs.join(path), "theirs");
    }
    fs::remove_file(theirs.join("gone-there")).unwrap();
    write(&theirs.join("new/theirs"), b"theirs");
    for path in ["both", "mine", "gone-there"] {
        replace(&ours.join(path), "ours");
    }
    for path in ["gone-here", "gone", "kind"] {
        fs::remove_file(ours.join(path)).unwrap();
    }
    write(&ours.join("kind/inside"), b"ours");
    write(&ours.join("new/ours"), b"ours");
    let first = site.save(&theirs);
    assert_eq!(clashes(&first), []);
    let report = site.save(&ours);
    let expected = [
        ("both", Case::BothChanged),
        ("gone-here", Case::DeletedHere),
        ("gone-there", Case::DeletedThere),
        ("kind", Case::BothChanged),
    ];
    assert_eq!(
        clashes(&report),
        expected.map(|(path, case)| (path.to_owned(), case))
    );
    let saved = report.saved.unwrap();
    assert_eq!(
        (saved.base, saved.onto, report.version),
        (Some(1), Some(2), Some(3))
    );
    let expected = [
        "both=ours",
        "gone-here=theirs",
        "gone-there=ours",
        "kind/inside=ours",
        "mine=ours",
        "new/ours=ours",
        "new/theirs=theirs",
        "theirs=theirs",
    ];
    assert_eq!(site.newest(), expected);
    assert_eq!(
        site.version().message,
        "changed here and in @2: both, kind; changed here, deleted in @2: gone-there; deleted here, kept as changed in @2: gone-here"
    );
}

/// The version that a tree was made from may not exist any more when its job ends.
#[test]
fn what_is_left_out_stays_as_it_is_in_the_ref() {
    let site = Site::with(&[("dir/x.log", "base"), ("dir/y", "base"), ("z", "base")]);
    let dir = site.job("job");
    replace(&dir.join("dir/x.log"), "ours");
    replace(&dir.join("dir/y"), "ours");
    write(&dir.join("new.log"), b"ours");
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.join("pipe"), 0o600.into()).unwrap();
    fs::remove_file(dir.join("z")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.join("z"), 0o600.into()).unwrap();
    let request = PutRequest {
        exclude: vec!["*.log".into()],
        ..site.request(&dir)
    };
    let report = site.try_save(&request).unwrap();
    let skipped: Vec<_> = report
        .skipped
        .iter()
        .map(|(path, _)| path.file_name().unwrap())
        .collect();
    assert_eq!(skipped, ["pipe", "z"]);
    assert_eq!(site.newest(), ["dir/x.log=base", "dir/y=ours", "z=base"]);
}

#[test]
fn an_empty_directory_is_no_save_unless_it_is_meant() {
    let site = Site::with(&[("a", "base")]);
    let dir = site.job("job");
    fs::remove_file(dir.join("a")).unwrap();
    let error = site.try_save(&site.request(&dir)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(
        error
            .to_string()
            .ends_with("job: is empty, and project/demo/cache@1 is not"),
        "{error}"
    );
    let request = PutRequest {
        allow_empty: true,
        ..site.request(&dir)
    };
    assert_eq!(site.try_save(&request).unwrap().version, Some(2));
    assert_eq!(site.newest(), Vec::<String>::new());
}

/// Excluded files exist, so the directory is not empty.
#[test]
fn a_directory_with_nothing_but_what_is_left_out_is_a_save() {
    let site = Site::with(&[("a", "base"), ("pipe", "base")]);
    let dir = site.job("job");
    for name in ["a", "pipe"] {
        fs::remove_file(dir.join(name)).unwrap();
    }
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.join("pipe"), 0o600.into()).unwrap();
    let report = site.try_save(&site.request(&dir)).unwrap();
    assert_eq!(report.version, Some(2));
    assert_eq!(site.newest(), ["pipe=base"]);
}

#[test]
fn marks_and_times_survive_a_merge() {
    let site = Site::with(&[("dir/a", "base"), ("dir/b", "base")]);
    let secret = site.path("first/dir/b");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    put(
        &site.store(),
        &PutRequest {
            always: true,
            ..PutRequest::new(site.path("first"), name(REF))
        },
        &Unwatched,
    )
    .unwrap();
    let (ours, theirs) = (site.job("ours"), site.job("theirs"));
    let dated = |path: PathBuf, secs| {
        replace(&path, "new");
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(secs);
        fs::File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_modified(time)
            .unwrap();
    };
    dated(theirs.join("dir/theirs"), 1_000_000_000);
    dated(ours.join("dir/ours"), 1_100_000_000);
    site.save(&theirs);
    site.save(&ours);
    assert!(site.version().private);
    let to = site.path("out");
    get(&site.store(), &GetRequest::new(spec(REF), &to), &Unwatched).unwrap();
    let secs = |path: &Path| {
        let time = fs::metadata(path).unwrap().modified().unwrap();
        time.duration_since(SystemTime::UNIX_EPOCH).unwrap()
    };
    assert_eq!(secs(&to.join("dir/theirs")).as_secs(), 1_000_000_000);
    assert_eq!(secs(&to.join("dir/ours")).as_secs(), 1_100_000_000);
    for path in ["dir/a", "dir/b"] {
        assert_eq!(
            secs(&to.join(path)),
            secs(&site.path("first").join(path)),
            "{path}"
        );
    }
}

#[test]
fn a_put_may_name_the_version_that_it_replaces() {
    let site = Site::with(&[("a", "base")]);
    let only = |number| PutRequest {
        always: true,
        onto: Onto::Only(number),
        ..PutRequest::new(site.path("first"), name(REF))
    };
    for (wanted, told) in [
        (0, "expected no version, found @1"),
        (2, "expected @2 as the newest version, found @1"),
    ] {
        let error = site.try_save(&only(wanted)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert_eq!(error.to_string(), format!("{REF}: {told}"));
    }
    assert_eq!(site.try_save(&only(1)).unwrap().version, Some(2));
    let error = site.try_save(&only(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
}

#[test]
fn a_ref_that_is_a_file_by_now_is_left_alone() {
    let site = Site::with(&[("a", "base")]);
    let dir = site.job("job");
    write(&site.path("file"), b"a file");
    put(
        &site.store(),
        &PutRequest::new(site.path("file"), name(REF)),
        &Unwatched,
    )
    .unwrap();
    write(&dir.join("new"), b"ours");
    let error = site.try_save(&site.request(&dir)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(
        error
            .to_string()
            .starts_with("project/demo/cache@2: is a file by now"),
        "{error}"
    );
}

#[test]
fn a_dry_run_tells_what_would_be_merged_and_writes_nothing() {
    let site = Site::with(&[("a", "base")]);
    let (ours, theirs) = (site.job("ours"), site.job("theirs"));
    replace(&ours.join("a"), "ours");
    replace(&theirs.join("a"), "theirs");
    site.save(&theirs);
    let before = site.remote.list("").unwrap().len();
    let request = PutRequest {
        dry_run: true,
        ..site.request(&ours)
    };
    let report = site.try_save(&request).unwrap();
    assert_eq!(clashes(&report), [("a".to_owned(), Case::BothChanged)]);
    assert_eq!(report.version, None);
    assert_eq!(site.remote.list("").unwrap().len(), before);
    assert_eq!(site.newest(), ["a=theirs"]);
}

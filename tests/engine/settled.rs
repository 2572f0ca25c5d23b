//! Updates of one destination from version to version: two stores, different options, interruptions at any step, lost
//! claims, and a job that edits, adds and deletes meanwhile.
//!
//! After every complete pass, the version's files are there, the job's changes are there or named, and nothing else is.
//! Actions follow from the seed in the failure message.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use store::{
    ErrorKind, MaterializeReport, MaterializeRequest, Pool, PoolLimits, Progress, Result, Store,
    materialize,
};
use support::{Random, effort};

use crate::stores::{noise, spec};
use crate::world::World;

const VERSIONS: u64 = 4;
const REF: &str = "project/a/data";

/// The files of version `number` in store `which`: some stay, some change, some come and go, and one changes its kind.
fn tree(dir: &Path, which: u64, number: u64) {
    let write = |name: &str, bytes: Vec<u8>| {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    write("same", noise(1, 900));
    write("small/same", noise(2, 50));
    write("config", noise(10 + number, 80));
    write("weights", noise(20 + number % 2, 3_000));
    write(&format!("of-{which}"), noise(30 + which, 700));
    for shard in number..number + 3 {
        write(&format!("shards/{shard}"), noise(40 + shard, 600));
        write(&format!("small/{shard}"), noise(50 + shard, 60));
    }
    match number % 2 {
        0 => write("kind", noise(60, 500)),
        _ => write("kind/of/dir", noise(61, 500)),
    }
    write(
        &format!("ckpt-{}/model", number % 3),
        noise(70 + number % 3, 650),
    );
    let latest = format!("ckpt-{}", number % 3);
    std::os::unix::fs::symlink(latest, dir.join("latest")).unwrap();
    // Times in the past, so that edits are visible.
    support::trees::settle_times(dir, which * 100 + number);
}

/// Two stores with the same ref, and a pool.
struct Site {
    world: World,
    stores: [Store; 2],
    pool: Pool,
}

fn site() -> Site {
    let world = World::new();
    let stores = [0, 1].map(|which| {
        let remote = world.memory();
        let mut host = world.host();
        host.stop = Arc::new(AtomicBool::new(false));
        let store = if which == 0 {
            Store::open(remote, host).unwrap()
        } else {
            let remote = Arc::new(store::remote::Objects::memory());
            Store::init(remote, host).unwrap()
        };
        for number in 0..VERSIONS {
            let name = format!("{which}-{number}");
            tree(&world.tree(&name), which, number);
            world.put_with(&store, &name, REF).unwrap();
        }
        store
    });
    let pool = Pool::open(&world.tree("pool"), PoolLimits::default()).unwrap();
    Site {
        world,
        stores,
        pool,
    }
}

/// After this many steps, interrupts as a signal does, or removes the claim as a process does that waited for long.
struct After {
    steps: AtomicU64,
    then: Box<dyn Fn() + Send + Sync>,
}

impl Progress for After {
    fn total(&self, _files: u64, _bytes: u64) {}

    fn advance(&self, _files: u64, _bytes: u64) {
        if self.steps.fetch_sub(1, Ordering::Relaxed) == 1 {
            (self.then)();
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Options {
    which: usize,
    number: u64,
    flatten: bool,
    excludes: bool,
    force: bool,
    exact: bool,
}

impl Site {
    fn make(
        &self,
        to: &Path,
        options: Options,
        progress: &dyn Progress,
    ) -> Result<MaterializeReport> {
        let request = MaterializeRequest {
            copy_below_bytes: 400,
            exclude: if options.excludes {
                vec!["small".into()]
            } else {
                Vec::new()
            },
            exact: options.exact,
            force: options.force,
            flatten: options.flatten,
            ..MaterializeRequest::new(spec(&format!("{REF}@{}", options.number + 1)), to)
        };
        materialize(&self.stores[options.which], &self.pool, &request, progress)
    }

    /// Removes every claim on a tree.
    fn lose_claims(pool: &Path) {
        for claim in fs::read_dir(pool.join("claims")).unwrap() {
            let claim = claim.unwrap().path();
            if claim
                .file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with("tree-")
            {
                fs::remove_file(claim).unwrap();
            }
        }
    }
}

/// The bytes of files and the targets of symlinks, by path; `None` for directories.
fn seen(dir: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut all = BTreeMap::new();
    let mut dirs = vec![dir.to_path_buf()];
    while let Some(next) = dirs.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let kind = fs::symlink_metadata(&path).unwrap();
            let what = if kind.is_symlink() {
                Some(
                    fs::read_link(&path)
                        .unwrap()
                        .into_os_string()
                        .into_encoded_bytes(),
                )
            } else if kind.is_dir() {
                dirs.push(path.clone());
                None
            } else {
                Some(fs::read(&path).unwrap())
            };
            all.insert(path.strip_prefix(dir).unwrap().to_owned(), what);
        }
    }
    all
}

/// What a job did, except what was undone on request.
#[derive(Default)]
struct Job {
    wrote: BTreeMap<PathBuf, Vec<u8>>,
    deleted: BTreeSet<PathBuf>,
    count: u64,
}

impl Job {
    fn act(&mut self, out: &Path, random: &mut Random, is_settled: bool) -> String {
        self.count += 1;
        let there = seen(out);
        let files: Vec<&PathBuf> = there
            .iter()
            .filter(|(_, what)| what.is_some())
            .map(|(path, _)| path)
            .collect();
        let picked = files[usize::try_from(random.below(files.len() as u64)).unwrap()].clone();
        match random.below(4) {
            0 => {
                let name = PathBuf::from(
                    [
                        "mine",
                        "small/mine",
                        "shards/mine",
                        "shards/1",
                        "small/4",
                        "of-1",
                    ][usize::try_from(random.below(6)).unwrap()],
                );
                if there.contains_key(&name)
                    || !there.contains_key(name.parent().unwrap()) && name.components().count() > 1
                {
                    return "nothing".into();
                }
                self.write(out, &name)
            }
            1 => {
                fs::remove_file(out.join(&picked)).unwrap();
                // In a tree that is not settled, nobody can tell what an update removed.
                if self.wrote.remove(&picked).is_none() && is_settled {
                    self.deleted.insert(picked.clone());
                }
                format!("delete {}", picked.display())
            }
            _ => self.write(out, &picked),
        }
    }

    /// Writes a new inode, as editors do.
    fn write(&mut self, out: &Path, name: &Path) -> String {
        let bytes = format!("of the job, number {}", self.count).into_bytes();
        let path = out.join(name);
        drop(fs::remove_file(&path));
        fs::write(path, &bytes).unwrap();
        self.wrote.insert(name.to_owned(), bytes);
        self.deleted.remove(name);
        format!("write {}", name.display())
    }
}

#[test]
fn after_a_whole_pass_the_tree_is_the_version_and_what_a_job_did() {
    let site = site();
    for seed in 0..effort(30, 3000) {
        run(&site, seed);
    }
}

impl Options {
    fn any(random: &mut Random) -> Self {
        Self {
            which: usize::try_from(random.below(2)).unwrap(),
            number: random.below(VERSIONS),
            flatten: random.below(3) == 0,
            excludes: random.below(4) == 0,
            force: random.below(10) == 0,
            exact: random.below(10) == 0,
        }
    }
}

fn run(site: &Site, seed: u64) {
    let mut random = Random::new(seed);
    let out = site.world.tree(&format!("out-{seed}"));
    let (mut job, mut settled, mut story) = (Job::default(), true, Vec::new());
    for _ in 0..8 {
        let options = Options::any(&mut random);
        let steps = if random.below(2) == 0 {
            1 + random.below(16)
        } else {
            1 << 40
        };
        let loses_claim = random.below(2) == 0;
        story.push(format!(
            "{options:?}, {steps} steps, loses claim {loses_claim}"
        ));
        let stop = Arc::clone(&site.stores[options.which].host().stop);
        let pool = site.pool.path().to_owned();
        let interrupt = Arc::clone(&stop);
        let progress = After {
            steps: steps.into(),
            then: Box::new(move || match loses_claim {
                true => Site::lose_claims(&pool),
                false => interrupt.store(true, Ordering::Relaxed),
            }),
        };
        let done = site.make(&out, options, &progress);
        stop.store(false, Ordering::Relaxed);
        match done {
            Err(error) => {
                assert!(
                    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::Conflict),
                    "seed {seed}: {story:#?}: {error:?}"
                );
                settled = false;
                // What an interrupted pass with these options may have undone does not count as the job's any more.
                if options.force || options.exact {
                    let there = if out.exists() {
                        seen(&out)
                    } else {
                        BTreeMap::new()
                    };
                    job.wrote
                        .retain(|path, bytes| there.get(path) == Some(&Some(bytes.clone())));
                }
                job.deleted.clear();
            }
            Ok(report) => {
                story.push(format!("kept {:?}", report.conflicting));
                let what = || format!("seed {seed}: {story:#?}");
                check(site, &out, options, &report, &mut job, &what());
                settled = true;
            }
        }
        if out.exists() {
            for _ in 0..random.below(3) {
                story.push(job.act(&out, &mut random, settled));
            }
        }
    }
    // At the end, a complete pass with `exact`.
    let options = Options {
        which: 0,
        number: 1,
        flatten: false,
        excludes: false,
        force: false,
        exact: true,
    };
    let report = site.make(&out, options, &store::Unwatched).unwrap();
    check(
        site,
        &out,
        options,
        &report,
        &mut job,
        &format!("seed {seed}, exactly, settled before {settled}: {story:#?}"),
    );
    assert_eq!((report.conflicts, report.kept), (0, 0));
    fs::remove_dir_all(&out).unwrap();
}

fn check(
    site: &Site,
    out: &Path,
    options: Options,
    report: &MaterializeReport,
    job: &mut Job,
    what: &str,
) {
    let fresh = site.world.tree(&format!(
        "fresh-{}-{}-{}-{}",
        options.which, options.number, options.flatten, options.excludes
    ));
    if !fresh.exists() {
        site.make(&fresh, options, &store::Unwatched).unwrap();
    }
    let (expected, found) = (seen(&fresh), seen(out));
    if options.exact {
        *job = Job {
            count: job.count,
            ..Job::default()
        };
        assert_eq!(expected, found, "{what}");
    }
    if options.force {
        job.wrote.retain(|path, _| {
            !path.ancestors().any(|above| {
                expected.get(above).is_some_and(Option::is_some)
                    || (above == path && expected.contains_key(above))
            })
        });
        job.deleted.clear();
    }
    let is_named = |path: &Path| {
        report
            .conflicting
            .iter()
            .any(|kept| path.starts_with(&kept.path))
    };
    for (path, bytes) in &job.wrote {
        assert_eq!(
            found.get(path),
            Some(&Some(bytes.clone())),
            "{what}: {} was the job's",
            path.display()
        );
    }
    for path in &job.deleted {
        assert!(
            !found.contains_key(path),
            "{what}: {} was deleted",
            path.display()
        );
    }
    for (path, bytes) in &expected {
        assert!(
            found.get(path) == Some(bytes) || is_named(path),
            "{what}: {} is another",
            path.display()
        );
    }
    for path in found.keys() {
        let is_jobs = job.wrote.keys().any(|wrote| wrote.starts_with(path));
        assert!(
            expected.contains_key(path) || is_jobs || is_named(path),
            "{what}: {} is stale",
            path.display()
        );
    }
    assert_eq!(report.conflicts, report.conflicting.len() as u64, "{what}");
    job.deleted.retain(|path| expected.contains_key(path));
}

#[test]
fn whoever_lost_the_claim_notices_at_the_next_step_and_says_that_the_tree_is_not_settled() {
    let site = site();
    let options = |number| Options {
        which: 0,
        number,
        flatten: false,
        excludes: false,
        force: false,
        exact: false,
    };
    for steps in 1..40 {
        let out = site.world.tree(&format!("lost-{steps}"));
        site.make(&out, options(0), &store::Unwatched).unwrap();
        let pool = site.pool.path().to_owned();
        let (other, done) = (site.world.tree("nowhere"), Arc::new(AtomicBool::new(false)));
        assert!(!other.exists());
        let took = Arc::clone(&done);
        let progress = After {
            steps: steps.into(),
            then: Box::new(move || {
                Site::lose_claims(&pool);
                took.store(true, Ordering::Relaxed);
            }),
        };
        let made = site.make(&out, options(2), &progress);
        if !done.load(Ordering::Relaxed) {
            assert!(steps > 5, "nothing was hit");
            return;
        }
        let error = made.expect_err("somebody else had the claim");
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
        assert!(
            error.to_string().contains("took the destination over"),
            "{error:?}"
        );
        let records = || {
            let trees = fs::read_dir(site.pool.path().join("made")).unwrap();
            trees
                .map(|tree| {
                    fs::read_dir(tree.unwrap().path())
                        .unwrap()
                        .filter(|name| name.as_ref().unwrap().file_name() != "at")
                        .count()
                })
                .max()
                .unwrap()
        };
        assert!(records() > 1, "the tree is not settled");
        let report = site.make(&out, options(3), &store::Unwatched).unwrap();
        assert_eq!(report.conflicts, 0, "{:?}", report.conflicting);
        let mut job = Job::default();
        check(
            &site,
            &out,
            options(3),
            &report,
            &mut job,
            &format!("after {steps} steps"),
        );
        assert_eq!(records(), 1, "the tree is settled again");
        fs::remove_dir_all(&out).unwrap();
    }
    panic!("still hit");
}

//! Conformance: what every backend must do, as one function that runs against any backend.
//!
//! For tests, and for checking an unknown endpoint. Leaves nothing behind when it succeeds.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Barrier;

use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result};
use crate::remote::{Created, Prune};

/// Threads that race for one key.
const RACERS: usize = 8;
/// The number of races.
const RACES: usize = 20;
/// More than two parts of an upload, but not a multiple of a part.
const UPLOAD_BYTES: usize = (20 << 20) + 3;
/// Keys that a backend might mangle.
const ODD_KEYS: [&str; 8] = [
    "a b",
    "percent%20",
    "plus+equals=&",
    "\u{e9}/\u{6f22}\u{5b57}",
    "tilde~/(x)",
    "a#b",
    "1#2x",
    ".hidden/...",
];
/// Keys that every backend must refuse.
const BAD_KEYS: [&str; 9] = [
    "",
    "/a",
    "a/",
    "a//b",
    "a/../b",
    "./a",
    "a\nb",
    "name#1",
    "packs/x#07",
];

/// One part of the suite.
type Step = fn(&dyn Prune) -> Result<()>;

/// Runs the whole suite against an empty remote.
///
/// # Errors
/// The first defect.
pub fn conformance(remote: &dyn Prune) -> Result<()> {
    let steps: [(&str, Step); 11] = [
        ("objects", objects),
        ("missing objects", missing),
        ("ranges", ranges),
        ("create", create),
        ("create race", race),
        ("touch", touch),
        ("giving up", giving_up),
        ("listing", listing),
        ("uploads", uploads),
        ("delete", delete),
        ("odd keys", odd_keys),
    ];
    for (name, step) in steps {
        step(remote).map_err(|error| error.within(name))?;
        let keys: Vec<_> = remote.list("")?.into_iter().map(|info| info.key).collect();
        remote.delete(&keys)?;
        equal("objects left", remote.list("")?.len(), 0)?;
    }
    Ok(())
}

fn objects(remote: &dyn Prune) -> Result<()> {
    for (key, bytes) in [
        ("empty", Bytes::new()),
        ("a/b/c", pattern(100)),
        ("a/large", pattern(3 << 20)),
    ] {
        remote.put(key, bytes.clone())?;
        same(key, &remote.get(key)?, &bytes)?;
        equal(key, remote.size(key)?, bytes.len() as u64)?;
    }
    remote.put("a/b/c", pattern(7))?;
    same("a replaced object", &remote.get("a/b/c")?, &pattern(7))
}

fn touch(remote: &dyn Prune) -> Result<()> {
    remote.put("touched/before", pattern(3))?;
    for key in ["touched/before", "touched/new", "touched/new"] {
        remote.touch(key)?;
    }
    equal(
        "an object that was there",
        remote.size("touched/before")?,
        3,
    )?;
    equal("an object that was not", remote.size("touched/new")?, 0)?;
    let refused = remote.touch("touched/").map_err(|error| error.kind());
    equal("a key that is none", refused, Err(ErrorKind::InvalidInput))
}

fn giving_up(remote: &dyn Prune) -> Result<()> {
    for key in ["reserve/0", "packs/0"] {
        remote.put(key, pattern(3))?;
    }
    for _ in 0..2 {
        remote.give_up("reserve/0")?;
    }
    let refused = remote.give_up("packs/0").map_err(|error| error.kind());
    equal("what is no reserve", refused, Err(ErrorKind::InvalidInput))?;
    equal("objects that stay", remote.list("")?.len(), 1)
}

fn missing(remote: &dyn Prune) -> Result<()> {
    remote.put("dir/x", pattern(1))?;
    for key in ["missing", "dir", "dir/y", "dir/x/z"] {
        let kinds = [
            remote.get(key).map_err(|error| error.kind()).err(),
            remote.size(key).map_err(|error| error.kind()).err(),
            remote
                .get_ranges(key, &[0..1, 0..1])
                .map_err(|error| error.kind())
                .err(),
        ];
        equal(key, kinds, [Some(ErrorKind::NotFound); 3])?;
    }
    equal("listing of nothing", remote.list("missing")?.len(), 0)?;
    let keys: Vec<_> = (0..40).map(|number| format!("run/{number:02}")).collect();
    for (number, key) in keys.iter().enumerate().filter(|(number, _)| *number != 30) {
        remote.put(key, pattern(number))?;
    }
    let run = remote.get_run(&keys)?;
    equal("objects of a run", run.len(), 30)?;
    run.iter()
        .enumerate()
        .try_for_each(|(number, bytes)| same("run", bytes, &pattern(number)))
}

fn ranges(remote: &dyn Prune) -> Result<()> {
    let bytes = pattern(5 << 20);
    remote.put("x", bytes.clone())?;
    let asked = [
        0..10,
        10..20,
        4_000_000..4_100_000,
        15..15,
        5..12,
        5_242_870..5_242_880,
        1000..1001,
    ];
    let got = remote.get_ranges("x", &asked)?;
    equal("ranges", got.len(), asked.len())?;
    for (range, got) in asked.iter().zip(got) {
        same(
            &format!("{range:?}"),
            &got,
            &bytes.slice(usize_range(range)?),
        )?;
    }
    equal("no ranges", remote.get_ranges("x", &[])?.len(), 0)?;
    for beyond in [
        5_242_870..5_242_881,
        5_242_880..5_242_881,
        1 << 40..(1 << 40) + 1,
    ] {
        let kind = remote
            .get_ranges("x", &[0..1, beyond.clone()])
            .map_err(|error| error.kind())
            .err();
        equal(
            &format!("{beyond:?} of a shorter object"),
            kind,
            Some(ErrorKind::Corrupt),
        )?;
    }
    Ok(())
}

fn create(remote: &dyn Prune) -> Result<()> {
    equal(
        "first create",
        remote.create("log/1", pattern(10))?,
        Created::Created,
    )?;
    equal(
        "second create",
        remote.create("log/1", pattern(20))?,
        Created::Exists,
    )?;
    same("what the first wrote", &remote.get("log/1")?, &pattern(10))?;
    remote.delete(&["log/1".to_owned()])?;
    equal(
        "create after delete",
        remote.create("log/1", Bytes::new())?,
        Created::Created,
    )
}

fn race(remote: &dyn Prune) -> Result<()> {
    for round in 0..RACES {
        let key = format!("race/{round}");
        let start = Barrier::new(RACERS);
        let answers: Vec<Result<Created>> = std::thread::scope(|scope| {
            let racers: Vec<_> = (0..RACERS)
                .map(|racer| {
                    let (start, key) = (&start, &key);
                    scope.spawn(move || {
                        start.wait();
                        remote.create(key, pattern(racer))
                    })
                })
                .collect();
            racers.into_iter().map(joined).collect()
        });
        let answers: Vec<_> = answers.into_iter().collect::<Result<_>>()?;
        let winners: Vec<_> = (0..)
            .zip(&answers)
            .filter(|(_, answer)| **answer == Created::Created)
            .collect();
        equal(&format!("winners of {key}"), winners.len(), 1)?;
        let winner: usize = winners.first().map_or(0, |(racer, _)| *racer);
        same(
            "what the winner wrote",
            &remote.get(&key)?,
            &pattern(winner),
        )?;
    }
    Ok(())
}

fn listing(remote: &dyn Prune) -> Result<()> {
    let begun = remote.upload("b/unfinished")?;
    for key in ["b/2", "b/10", "b/1/x", "bc", "alone", "c/d/e/f"] {
        remote.put(key, pattern(key.len()))?;
    }
    let keys = |prefix: &str| -> Result<Vec<String>> {
        Ok(remote
            .list(prefix)?
            .into_iter()
            .map(|info| info.key)
            .collect())
    };
    equal(
        "all",
        keys("")?,
        owned(&["alone", "b/1/x", "b/10", "b/2", "bc", "c/d/e/f"]),
    )?;
    equal("b", keys("b")?, owned(&["b/1/x", "b/10", "b/2"]))?;
    equal("b/", keys("b/")?, owned(&["b/1/x", "b/10", "b/2"]))?;
    equal("an object as prefix", keys("alone")?, owned(&[]))?;
    let sizes: Vec<_> = remote
        .list("c")?
        .into_iter()
        .map(|info| info.size)
        .collect();
    equal("sizes", sizes, vec![7])?;
    drop(begun);
    Ok(())
}

fn uploads(remote: &dyn Prune) -> Result<()> {
    let bytes = pattern(UPLOAD_BYTES);
    for (key, piece) in [
        ("up/large", 3 << 20),
        ("up/whole", UPLOAD_BYTES),
        ("up/huge piece", 17 << 20),
    ] {
        let mut upload = remote.upload(key)?;
        let mut rest = bytes.clone();
        while !rest.is_empty() {
            upload.write(rest.split_to(piece.min(rest.len())))?;
        }
        equal(
            "visible before the end",
            remote.get(key).map_err(|error| error.kind()).err(),
            Some(ErrorKind::NotFound),
        )?;
        upload.finish()?;
        same(key, &remote.get(key)?, &bytes)?;
    }
    remote.upload("up/empty")?.finish()?;
    equal("empty upload", remote.size("up/empty")?, 0)?;
    let mut given_up = remote.upload("up/aborted")?;
    given_up.write(bytes)?;
    drop(given_up);
    equal(
        "aborted upload",
        remote.get("up/aborted").map_err(|error| error.kind()).err(),
        Some(ErrorKind::NotFound),
    )?;
    equal("stale uploads", remote.stale_uploads("")?.len(), 0)
}

fn delete(remote: &dyn Prune) -> Result<()> {
    for key in ["d/1", "d/2", "d/3"] {
        remote.put(key, Bytes::new())?;
    }
    remote.delete(&owned(&["d/1", "d/missing", "no/such/place", "d/3"]))?;
    let left: Vec<_> = remote.list("")?.into_iter().map(|info| info.key).collect();
    equal("left", left, owned(&["d/2"]))?;
    remote.delete(&[])
}

fn odd_keys(remote: &dyn Prune) -> Result<()> {
    for key in ODD_KEYS {
        remote.put(key, pattern(key.len()))?;
        same(key, &remote.get(key)?, &pattern(key.len()))?;
        equal(key, remote.create(key, Bytes::new())?, Created::Exists)?;
    }
    let mut expected = owned(&ODD_KEYS);
    expected.sort_unstable();
    let keys: Vec<_> = remote.list("")?.into_iter().map(|info| info.key).collect();
    equal("listing of odd keys", keys, expected)?;
    for key in BAD_KEYS {
        let kinds = [
            remote
                .put(key, Bytes::new())
                .map_err(|error| error.kind())
                .err(),
            remote
                .create(key, Bytes::new())
                .map_err(|error| error.kind())
                .err(),
            remote.get(key).map_err(|error| error.kind()).err(),
            remote.upload(key).map_err(|error| error.kind()).err(),
        ];
        equal(
            &format!("bad key {key:?}"),
            kinds,
            [Some(ErrorKind::InvalidInput); 4],
        )?;
    }
    Ok(())
}

/// Bytes that differ at every offset and for every length.
fn pattern(len: usize) -> Bytes {
    let hash = blake3::Hasher::new()
        .update(&len.to_string().into_bytes())
        .finalize_xof();
    let mut bytes = vec![0; len];
    let mut hash = hash;
    hash.fill(&mut bytes);
    bytes.into()
}

fn usize_range(range: &Range<u64>) -> Result<Range<usize>> {
    let number = |number: u64| {
        usize::try_from(number).map_err(|error| Error::invalid("a range").because(error))
    };
    Ok(number(range.start)?..number(range.end)?)
}

fn owned(keys: &[&str]) -> Vec<String> {
    keys.iter().map(|&key| key.to_owned()).collect()
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread
        .join()
        .unwrap_or_else(|_| Err(Error::new(ErrorKind::Io, "a thread of the test panicked")))
}

fn same(what: &str, found: &Bytes, expected: &Bytes) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    let difference = found
        .iter()
        .zip(expected)
        .take_while(|(left, right)| left == right)
        .count();
    Err(Error::corrupt(format!(
        "{what}: expected {} bytes, found {}, equal up to byte {difference}",
        expected.len(),
        found.len()
    )))
}

fn equal<T: PartialEq + Debug>(what: &str, found: T, expected: T) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "{what}: expected {expected:?}, found {found:?}"
    )))
}

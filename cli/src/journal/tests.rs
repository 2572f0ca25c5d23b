//! A journal that is lost, truncated or full of garbage becomes a new one with a note; it never stops a run.

use std::path::PathBuf;

use tempfile::TempDir;

use super::*;

const PACKS_COUNT: u8 = 40;

struct Room {
    temp: TempDir,
}

impl Room {
    fn new() -> Self {
        Self {
            temp: tempfile::tempdir().unwrap(),
        }
    }

    fn dir(&self) -> JobDir {
        JobDir::at(self.temp.path().join("job"))
    }

    fn begin(&self, stores: u8) -> Journal {
        self.wait_for_the_database();
        let held = self.dir().hold().unwrap().unwrap();
        let facts = Facts {
            job: "job".to_owned(),
            from: "a".to_owned(),
            to: "b".to_owned(),
            refs: vec!["project/demo".to_owned()],
            stores: None,
        };
        let journal = Journal::begin(self.dir(), held, facts);
        journal.between(StoreId([stores; 16]), StoreId([9; 16]));
        journal
    }

    /// sled's threads may outlive a database for a moment. A process that opens the database once never notices.
    fn wait_for_the_database(&self) {
        let Ok(file) = std::fs::File::open(self.dir().database().join("db")) else {
            return;
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        while file.try_lock().is_err() {
            assert!(Instant::now() < deadline, "the database is still open");
            std::thread::yield_now();
        }
    }

    /// A killed run that had finished packs and committed some of them.
    fn killed(&self) {
        let journal = self.begin(1);
        for number in 0..PACKS_COUNT {
            journal.pack_sealed(pack(number));
        }
        journal.packs_committed(&[pack(0), pack(1)]);
        assert_eq!(journal.notes(), Vec::<String>::new());
    }

    /// Every file of the database.
    fn files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.dir().database()).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let mut files: Vec<PathBuf> = paths.filter(|path| path.is_file()).collect();
        files.sort();
        files
    }

    /// Checks that a run works with the current files and is remembered. Facts of an earlier time may reappear.
    fn check(&self, what: &str) -> Vec<PackId> {
        let journal = self.begin(1);
        let packs = journal.packs();
        assert!(packs.iter().all(|found| found.0[0] < PACKS_COUNT), "{what}");
        journal.pack_sealed(pack(99));
        journal.end(Outcome::Done, Numbers::default(), None, Vec::new());
        drop(journal);
        let status = status(&self.dir()).unwrap();
        assert_eq!(
            status.runs.first().unwrap().outcome,
            Outcome::Done,
            "{what}"
        );
        let journal = self.begin(1);
        assert!(
            journal.packs().contains(&pack(99)),
            "{what}: {:?}",
            journal.notes()
        );
        assert_eq!(journal.notes(), Vec::<String>::new(), "{what}");
        packs
    }
}

fn pack(number: u8) -> PackId {
    PackId([number; 16])
}

#[test]
fn a_run_that_was_killed_leaves_what_it_finished() {
    let room = Room::new();
    room.killed();
    let packs = room.check("killed");
    let expected: Vec<PackId> = (2..PACKS_COUNT).map(pack).collect();
    assert_eq!(packs, expected);
    let runs = status(&room.dir()).unwrap().runs;
    let outcomes: Vec<Outcome> = runs.iter().map(|run| run.outcome).collect();
    let expected = [Outcome::Killed, Outcome::Done, Outcome::Killed];
    assert_eq!(outcomes, expected, "{runs:?}");
}

#[test]
fn resume_points_of_other_stores_are_forgotten() {
    let room = Room::new();
    room.killed();
    assert_eq!(room.begin(2).packs(), Vec::new());
    assert_eq!(room.begin(1).packs(), Vec::new());
}

#[test]
fn the_errors_of_a_run_are_told_and_go_with_it() {
    let room = Room::new();
    let failed = |number: usize| RefError {
        name: format!("project/demo/{number}@1"),
        error: "no such ref".to_owned(),
    };
    for run in 1..=RUNS_MAX + 3 {
        let journal = room.begin(1);
        let error = Some("some refs did not make it".to_owned());
        journal.end(
            Outcome::Partly,
            Numbers::default(),
            error,
            vec![failed(run)],
        );
    }
    let told = status(&room.dir()).unwrap();
    assert_eq!(
        (told.runs.len(), told.errors.as_slice()),
        (RUNS_TOLD, &[failed(RUNS_MAX + 3)][..])
    );
    assert_eq!(told.runs[0].number, RUNS_MAX as u64 + 3);
    // The status comes from the database if its file is gone.
    std::fs::remove_file(room.dir().status()).unwrap();
    assert_eq!(status(&room.dir()).unwrap(), told);
    let database = Database::open(&room.dir().database()).unwrap();
    assert_eq!(database.rows(RUNS).unwrap().len(), RUNS_MAX);
    assert_eq!(database.rows(ERRORS).unwrap().len(), RUNS_MAX);
}

#[test]
fn a_journal_that_is_lost_begins_anew() {
    let room = Room::new();
    room.killed();
    std::fs::remove_dir_all(room.dir().database()).unwrap();
    assert_eq!(room.check("lost"), Vec::new());
    std::fs::remove_dir_all(room.dir().database()).unwrap();
    std::fs::write(room.dir().database(), "a file").unwrap();
    let journal = room.begin(1);
    assert!(journal.notes()[0].contains("was damaged and is started again"));
}

#[test]
fn a_journal_that_is_cut_short_costs_its_memory_at_most() {
    let room = Room::new();
    room.killed();
    for (at, file) in room.files().into_iter().enumerate() {
        let length = usize::try_from(file.metadata().unwrap().len()).unwrap();
        let whole = std::fs::read(&file).unwrap();
        let used = whole.iter().rposition(|byte| *byte != 0).unwrap_or(0) + 1;
        let step = used.div_ceil(12).max(1);
        let every = (0..used).step_by(step).flat_map(|at| [at, at + 1]);
        for cut in every.chain([length / 2, length.saturating_sub(1)]) {
            let room = Room::new();
            room.killed();
            let file = &room.files()[at];
            let bytes = std::fs::read(file).unwrap();
            std::fs::write(file, &bytes[..cut.min(bytes.len())]).unwrap();
            room.check(&format!(
                "{} cut to {cut} of {length} bytes",
                file.display()
            ));
        }
    }
}

#[test]
fn garbage_in_a_journal_costs_its_memory_at_most() {
    let room = Room::new();
    room.killed();
    let mut seed: u32 = 7;
    let mut noise = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        seed.to_be_bytes()[0]
    };
    for at in 0..room.files().len() {
        for round in 0..24_usize {
            let room = Room::new();
            room.killed();
            let file = &room.files()[at];
            let mut bytes = std::fs::read(file).unwrap();
            let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) + 1;
            let from = used * round / 24;
            // Damages the whole file, a part of it, or one byte.
            let count = [used, 16, 1][round % 3];
            let hit = bytes.iter_mut().take(used).skip(from).take(count);
            hit.for_each(|byte| *byte ^= noise() | 1);
            std::fs::write(file, &bytes).unwrap();
            room.check(&format!("{}: {count} bytes at {from}", file.display()));
        }
    }
}

#[test]
fn what_a_run_leaves_is_dropped_without_a_word_when_its_job_cannot_be_remembered() {
    let room = Room::new();
    std::fs::create_dir_all(room.dir().path()).unwrap();
    let held = room.dir().hold().unwrap().unwrap();
    // Nothing can be created in this directory, not even by root.
    let nowhere = JobDir::at(PathBuf::from("/proc/self/nowhere"));
    let facts = Facts {
        job: "job".to_owned(),
        from: "a".to_owned(),
        to: "b".to_owned(),
        refs: Vec::new(),
        stores: None,
    };
    let journal = Journal::begin(nowhere, held, facts);
    journal.pack_sealed(pack(1));
    assert_eq!(journal.packs(), Vec::new());
    journal.end(Outcome::Done, Numbers::default(), None, Vec::new());
    let notes = journal.notes();
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[0].contains("there is no journal"), "{notes:?}");
}

//! Exercises the Rust crate `hf-hub` with an endpoint. Prints one JSON object: step -> "ok" or the error.
//!
//! hub-rust GENERATION STEP...   The caller sets HF_HOME, HF_ENDPOINT and HF_TOKEN, which the crate reads itself if it
//! can. Nothing in it is replaced or patched.

mod one;
mod zero;

use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};

const MODEL: &str = "org/tiny-model";
const DATASET: &str = "org/tiny-set";
const PLAIN: &str = "plain/files";

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// A repo at a revision.
pub(crate) struct Repo {
    pub(crate) name: &'static str,
    pub(crate) is_dataset: bool,
    pub(crate) revision: String,
}

impl Repo {
    fn at(name: &'static str, revision: &str) -> Self {
        Self {
            name,
            is_dataset: name == DATASET,
            revision: revision.to_owned(),
        }
    }
}

/// One generation of the crate.
pub(crate) trait Client {
    /// The commit of a revision, and its files.
    fn files(&self, repo: &Repo) -> Outcome<(String, Vec<String>)>;
    /// Downloads one file to the cache.
    fn get(&self, repo: &Repo, file: &str) -> Outcome<PathBuf>;
    /// Downloads these files of a repo. Returns their directory.
    fn all(&self, repo: &Repo, files: &[String]) -> Outcome<PathBuf>;
    /// Whether the crate can request a file with this name.
    fn can_name(&self, file: &str) -> bool;
    /// Whether the error says that the requested object does not exist, or is hidden from the caller.
    fn is_refusal(&self, error: &(dyn Error + 'static)) -> bool;
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

fn expect(holds: bool, what: &str) -> Outcome<()> {
    match holds {
        true => Ok(()),
        false => Err(what.into()),
    }
}

/// Checks that a repo has the files of a directory, byte for byte.
fn same(client: &dyn Client, repo: &Repo, place: &str) -> Outcome<()> {
    let source = Path::new(&variable("SOURCE")).join(place);
    let (_, listed) = client.files(repo)?;
    let there: BTreeSet<String> = listed.iter().cloned().collect();
    let expected = names(&source, &source)?;
    expect(
        there == expected,
        &format!("{there:?}, expected {expected:?}"),
    )?;
    let asked: Vec<String> = listed
        .into_iter()
        .filter(|file| client.can_name(file))
        .collect();
    let path = client.all(repo, &asked)?;
    for file in &asked {
        let (found, expected) = (
            std::fs::read(path.join(file))?,
            std::fs::read(source.join(file))?,
        );
        expect(found == expected, &format!("{file}: other bytes"))?;
    }
    Ok(())
}

/// The paths of the files below a directory.
fn names(root: &Path, dir: &Path) -> Outcome<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        match path.is_dir() {
            true => all.extend(names(root, &path)?),
            false => drop(all.insert(path.strip_prefix(root)?.display().to_string())),
        }
    }
    Ok(all)
}

fn refused<T>(client: &dyn Client, what: &str, outcome: Outcome<T>) -> Outcome<()> {
    match outcome {
        Ok(_) => Err(format!("{what}: is there").into()),
        Err(error) if client.is_refusal(error.as_ref()) => Ok(()),
        Err(error) => Err(format!("{what}: {error} ({error:?})").into()),
    }
}

fn step(client: &dyn Client, name: &str) -> Outcome<()> {
    let commit = variable("MODEL_COMMIT");
    let main = |name| Repo::at(name, "main");
    match name {
        "model" => {
            let (found, _) = client.files(&main(MODEL))?;
            expect(found == commit, &format!("{found}, expected {commit}"))?;
            same(client, &main(MODEL), "model")
        }
        "dataset" => same(client, &main(DATASET), "dataset"),
        "plain" => same(client, &main(PLAIN), "plain"),
        "commit" => same(client, &Repo::at(MODEL, &commit), "model"),
        "version" => same(client, &Repo::at(PLAIN, "v1"), "plain"),
        "one" => {
            let path = client.get(&main(MODEL), "sub/poetry.lock")?;
            let text = std::fs::read_to_string(path)?;
            expect(text.starts_with("# not a lock of ours"), &text)
        }
        "absent" => {
            refused(client, "a file", client.get(&main(MODEL), "none.json"))?;
            refused(
                client,
                "a file of no repo",
                client.get(&main("org/none"), "config.json"),
            )?;
            refused(client, "a repo", client.files(&main("org/none")))?;
            let none = Repo::at(MODEL, "none");
            refused(
                client,
                "a file of no revision",
                client.get(&none, "config.json"),
            )?;
            refused(client, "a revision", client.files(&none))
        }
        // A repo that others may read.
        "refused" => {
            refused(client, "a repo", client.files(&main(MODEL)))?;
            refused(client, "a file", client.get(&main(MODEL), "config.json"))
        }
        _ => Err("there is no such step".into()),
    }
}

fn main() {
    let mut words = std::env::args().skip(1);
    let client: Outcome<Box<dyn Client>> = match words.next().as_deref() {
        Some("0.5.0") => zero::client(),
        Some("1.0.0") => one::client(),
        _ => Err("there is no such generation".into()),
    };
    let mut results = serde_json::Map::new();
    for name in words {
        let result = match &client {
            Ok(client) => step(client.as_ref(), &name).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let told = result.err().unwrap_or_else(|| "ok".to_owned());
        results.insert(name, told.into());
    }
    println!("{}", serde_json::Value::Object(results));
}

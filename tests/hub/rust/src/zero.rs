//! Generation 0: requests the first byte of a file to learn its properties, and puts names into URLs without escapes.

use std::error::Error;
use std::path::PathBuf;

use hf_hub_0::api::sync::{Api, ApiBuilder, ApiRepo};
use hf_hub_0::{Repo as Named, RepoType};

use crate::{Client, Outcome, Repo};

struct Zero(Api);

/// A client that reads its variables itself. It reads tokens only from files, so the token is passed to it.
pub(crate) fn client() -> Outcome<Box<dyn Client>> {
    let token = std::env::var("HF_TOKEN")
        .ok()
        .filter(|token| !token.is_empty());
    let builder = ApiBuilder::from_env()
        .with_progress(false)
        .with_token(token);
    Ok(Box::new(Zero(builder.build()?)))
}

impl Zero {
    fn repo(&self, repo: &Repo) -> ApiRepo {
        let kind = match repo.is_dataset {
            true => RepoType::Dataset,
            false => RepoType::Model,
        };
        let (name, revision) = (repo.name.to_owned(), repo.revision.clone());
        self.0.repo(Named::with_revision(name, kind, revision))
    }
}

impl Client for Zero {
    fn files(&self, repo: &Repo) -> Outcome<(String, Vec<String>)> {
        let info = self.repo(repo).info()?;
        let files = info.siblings.into_iter().map(|file| file.rfilename);
        Ok((info.sha, files.collect()))
    }

    fn get(&self, repo: &Repo, file: &str) -> Outcome<PathBuf> {
        Ok(self.repo(repo).get(file)?)
    }

    fn all(&self, repo: &Repo, files: &[String]) -> Outcome<PathBuf> {
        let mut place = None;
        for file in files {
            let path = self
                .get(repo, file)
                .map_err(|error| format!("{file}: {error}"))?;
            let depth = file.split('/').count();
            place = path.ancestors().nth(depth).map(PathBuf::from);
        }
        place.ok_or_else(|| "there are no files".into())
    }

    fn can_name(&self, file: &str) -> bool {
        !file.contains(' ')
    }

    fn is_refusal(&self, error: &(dyn Error + 'static)) -> bool {
        let told = error.to_string();
        ["401", "403", "404"]
            .iter()
            .any(|status| told.contains(status))
    }
}

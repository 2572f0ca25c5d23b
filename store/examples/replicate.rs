//! Brings a ref to another store: only the chunks that it lacks are sent.

use store::replicate::{Forgetful, Selection};
use store::{Host, PutRequest, ReplicateRequest, Result, Store, Unwatched, put, remote, replicate};

fn main() -> Result<()> {
    let scratch =
        tempfile::tempdir().map_err(|error| store::Error::io("make", "a directory", error))?;
    let options = remote::Options::default();
    let here = Store::create(&remote::open("memory:", &options)?, Host::default())?;
    let there = Store::create(&remote::open("memory:", &options)?, Host::default())?;

    let name: store::RefName = "project/demo/data".parse()?;
    for day in ["monday", "tuesday"] {
        let file = scratch.path().join(day);
        std::fs::write(&file, vec![7; 1_000_000])
            .map_err(|error| store::Error::io("write", &file, error))?;
        put(
            &here,
            &PutRequest::new(scratch.path(), name.clone()),
            &Unwatched,
        )?;

        let request = ReplicateRequest::new(vec![Selection::Ref(name.clone())]);
        let report = replicate(&here, &there, &request, &Forgetful, &Unwatched)?;
        println!("{day}: {} chunks sent", report.chunks);
    }
    Ok(())
}

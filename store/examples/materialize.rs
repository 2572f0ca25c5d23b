//! Gives a job its cache directory: a tree of hard links to the pool of this host.

use store::{
    Host, MaterializeRequest, Pool, PoolLimits, PutRequest, Result, Store, Unwatched, materialize,
    put, remote,
};

fn main() -> Result<()> {
    let scratch =
        tempfile::tempdir().map_err(|error| store::Error::io("make", "a directory", error))?;
    let source = scratch.path().join("cache");
    std::fs::create_dir(&source).map_err(|error| store::Error::io("make", &source, error))?;
    std::fs::write(source.join("model.bin"), vec![7; 1_000_000])
        .map_err(|error| store::Error::io("write", &source, error))?;

    let options = remote::Options::default();
    let store = Store::create(&remote::open("memory:", &options)?, Host::default())?;
    put(
        &store,
        &PutRequest::new(&source, "project/demo/cache".parse()?),
        &Unwatched,
    )?;

    // The pool holds one file of each content; any number of trees share it.
    let pool = Pool::open(&scratch.path().join("pool"), PoolLimits::default())?;
    for job in ["job-1", "job-2"] {
        let request =
            MaterializeRequest::new("project/demo/cache".parse()?, scratch.path().join(job));
        let report = materialize(&store, &pool, &request, &Unwatched)?;
        println!(
            "{job}: {} files linked, {} copied",
            report.linked, report.copied
        );
    }
    Ok(())
}

//! Puts a directory into a store, and gets it back.

use store::{GetRequest, Host, PutRequest, Result, Store, Unwatched, get, put, remote};

fn main() -> Result<()> {
    let scratch =
        tempfile::tempdir().map_err(|error| store::Error::io("make", "a directory", error))?;
    let source = scratch.path().join("weights");
    std::fs::create_dir(&source).map_err(|error| store::Error::io("make", &source, error))?;
    std::fs::write(source.join("layer-0.bin"), vec![7; 1_000_000])
        .map_err(|error| store::Error::io("write", &source, error))?;

    // A directory; `s3://bucket/prefix` goes the same way, with credentials in the options' settings.
    let url = scratch.path().join("store").display().to_string();
    let options = remote::Options {
        create: true,
        ..remote::Options::default()
    };
    let store = Store::create(&remote::open(&url, &options)?, Host::default())?;

    let request = PutRequest::new(&source, "project/demo/weights".parse()?);
    let report = put(&store, &request, &Unwatched)?;
    println!("{} files, {} new bytes", report.files, report.new_bytes);

    let request = GetRequest::new(
        "project/demo/weights@1".parse()?,
        scratch.path().join("copy"),
    );
    let report = get(&store, &request, &Unwatched)?;
    println!("{} bytes came back, verified", report.bytes);
    Ok(())
}

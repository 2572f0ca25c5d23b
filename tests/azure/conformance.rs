//! `conformance URL NAME=VALUE...`: runs the suite for every backend at an empty URL with these settings.

use store::remote::testing::conformance::conformance;
use store::remote::{Options, open};

fn main() -> store::Result<()> {
    let mut words = std::env::args().skip(1);
    let url = words.next().unwrap_or_default();
    let settings = words.filter_map(|word| {
        let (name, value) = word.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    });
    let options = Options {
        settings: settings.collect(),
        ..Options::default()
    };
    conformance(&*open(&url, &options)?)
}

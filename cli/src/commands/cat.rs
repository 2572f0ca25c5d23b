//! `store cat`: the bytes of one file.

use std::ffi::OsString;
use std::ops::Range;

use store::Result;

use crate::context::Context;
use crate::ui::{human, names};

/// Print the bytes of one file, or a range of them
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A file inside a ref, like project/llama-ft/imagenet:README.md, or a ref that is one file
    #[arg(value_name = "REF[@N][:PATH]")]
    source: OsString,

    /// Print only these bytes: START..END, START.. or ..END, counted from 0, without END itself
    #[arg(long, value_name = "RANGE", value_parser = parse_range, default_value = "..")]
    range: Range<u64>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let spec = names::spec(&args.source)?;
    let store = context.open()?;
    store::cat(&store, &spec, &args.range, &mut |bytes| {
        context.out.bytes(bytes)
    })?;
    Ok(())
}

/// `10..20`, `1MB..`, `..4KiB`.
fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let expected =
        || "expected START..END with START at most END, like 0..100, 1MB.. or ..4KiB".to_owned();
    let (start, end) = text.split_once("..").ok_or_else(expected)?;
    let bound = |text: &str, default| {
        if text.is_empty() {
            Ok(default)
        } else {
            human::parse_size(text)
        }
    };
    let (start, end) = (bound(start, 0)?, bound(end, u64::MAX)?);
    if start <= end {
        Ok(start..end)
    } else {
        Err(expected())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_people_write_them() {
        assert_eq!(parse_range(".."), Ok(0..u64::MAX));
        assert_eq!(parse_range("10..20"), Ok(10..20));
        assert_eq!(parse_range("1kB.."), Ok(1000..u64::MAX));
        assert_eq!(parse_range("..1KiB"), Ok(0..1024));
        for bad in ["", "5", "20..10", "a..b", "1...2"] {
            assert!(parse_range(bad).is_err(), "{bad}");
        }
    }
}

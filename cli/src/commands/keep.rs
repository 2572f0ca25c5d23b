//! What `--keep` takes, and why it does not take the rest.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use store::Keep;

/// Parses one of those that are kept. Extended attributes are told why they are not.
pub(super) fn parser() -> impl TypedValueParser<Value = Keep> {
    let kept = Keep::ALL.map(|keep| PossibleValue::new(keep.as_str()));
    let named = kept
        .into_iter()
        .chain([PossibleValue::new("xattrs").hide(true)]);
    PossibleValuesParser::new(named).try_map(|name| match name.as_str() {
        "xattrs" => Err(
            "extended attributes are not kept: which of them a user may set, and how large, is the matter of each file \
             system, and some grant rights; put an archive of `tar --xattrs` where they count"
                .to_owned(),
        ),
        name => name.parse::<Keep>().map_err(|error| error.to_string()),
    })
}

/// Refuses all of them.
pub(super) fn of_links(_what: &str) -> Result<Keep, String> {
    Err(
        "a tree of hard links shares its files with other trees, and a file has one mode and one owner: \
         use `store get --keep`"
            .to_owned(),
    )
}

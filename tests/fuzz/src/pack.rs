//! Packs, read without a segment: header, trailer, table.

use store::Result;
use store::format::{PackHeader, PackTable, PackTrailer};

use super::seal;

/// Returns whether anything was accepted.
pub fn run(data: &[u8]) -> bool {
    let mut accepted = false;
    for bytes in [data, &seal::pack(data)] {
        if let Ok((header, trailer, table)) = decode(bytes) {
            accepted = true;
            let again = table.encode(&header).unwrap();
            assert_eq!(again, &bytes[trailer.table_offset as usize..]);
        }
    }
    accepted
}

fn decode(bytes: &[u8]) -> Result<(PackHeader, PackTrailer, PackTable)> {
    let header = PackHeader::decode("x", bytes)?;
    let trailer = &bytes[bytes.len().saturating_sub(64)..];
    let trailer = PackTrailer::decode("x", bytes.len() as u64, trailer)?;
    let table = &bytes[trailer.table_offset as usize..];
    let table = PackTable::decode("x", &header, &trailer, table)?;
    Ok((header, trailer, table))
}

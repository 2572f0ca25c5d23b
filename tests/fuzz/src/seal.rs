//! Corrects checksums, so that fuzzing reaches the code after them.
//!
//! Every target decodes its input twice: unchanged, and with right checksums.

/// The first line of `data`, sealed.
pub fn text(data: &[u8]) -> Vec<u8> {
    let text = data.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = format!("\nblake3 {}\n", blake3::hash(text));
    [text, line.as_bytes()].concat()
}

/// Wraps `text` in one zstd frame with raw blocks.
pub fn compressed(text: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58];
    let mut blocks = text.chunks(1 << 17).peekable();
    while let Some(block) = blocks.next() {
        let last = usize::from(blocks.peek().is_none());
        frame.extend_from_slice(&(block.len() << 3 | last).to_le_bytes()[..3]);
        frame.extend_from_slice(block);
    }
    frame
}

/// Corrects the checksum in the trailer of a pack, if the trailer says where the table is.
pub fn pack(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    let Some(trailer) = bytes.len().checked_sub(64).filter(|at| *at >= 80) else {
        return bytes;
    };
    let sum = blake3::hash(&bytes[..72]);
    bytes[72..80].copy_from_slice(&sum.as_bytes()[..8]);
    let offset: [u8; 4] = bytes[trailer + 12..trailer + 16].try_into().unwrap();
    let table = u32::from_le_bytes(offset) as usize;
    if let Some(covered) = bytes.get(table..trailer + 32) {
        let checksum = blake3::hash(&[&bytes[..80], covered].concat());
        bytes[trailer + 32..].copy_from_slice(checksum.as_bytes());
    }
    bytes
}

/// Corrects the checksums in the header and the trailer of a segment.
pub fn segment(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    let Some(trailer) = bytes.len().checked_sub(40).filter(|at| *at >= 96) else {
        return bytes;
    };
    let header = blake3::hash(&bytes[..88]);
    bytes[88..96].copy_from_slice(&header.as_bytes()[..8]);
    let checksum = blake3::hash(&bytes[..trailer]);
    bytes[trailer + 8..].copy_from_slice(checksum.as_bytes());
    bytes
}

/// Corrects the checksums of a bundle's ends and record heads, as far as the lengths lead from one to the next.
pub fn bundle(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    let sum =
        |covered: &[u8]| -> [u8; 8] { blake3::hash(covered).as_bytes()[..8].try_into().unwrap() };
    for at in [512, 1024, 2560, 3072] {
        if let Some(end) = bytes.get_mut(at..at + 32) {
            let own = sum(&end[..24]);
            end[24..].copy_from_slice(&own);
        }
    }
    let mut at = 4096_usize;
    while let Some(head) = bytes.get(at..).and_then(|rest| rest.first_chunk::<32>()) {
        let key = usize::from(u16::from_le_bytes([head[2], head[3]]));
        let body = u64::from_le_bytes(head[8..16].try_into().unwrap()) as usize;
        let Some(key_text) = bytes.get(at + 32..at + 32 + key) else {
            break;
        };
        let own = sum(&[&head[..24], key_text].concat());
        bytes[at + 24..at + 32].copy_from_slice(&own);
        let Some(next) = (at + 32 + key).checked_add(body) else {
            break;
        };
        at = next;
    }
    bytes
}

/// A checkpoint with the first line of `data` as its head, and one block of rows from the rest.
pub fn checkpoint(data: &[u8]) -> Vec<u8> {
    let mut parts = data.splitn(2, |byte| *byte == b'\n');
    let (head, rows) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    let stored = compressed(rows);
    let (mut index, mut count) = (Vec::new(), 0_u32);
    let mut rest = rows;
    while let Some((len, behind)) = rest.split_first_chunk::<2>() {
        let name = usize::from(u16::from_le_bytes(*len));
        let Some((value, _)) = behind
            .get(name + 8..)
            .and_then(<[u8]>::split_first_chunk::<4>)
        else {
            break;
        };
        if index.is_empty() {
            index.extend_from_slice(&rest[..2 + name + 8]);
        }
        count += 1;
        let end = name + 12 + u32::from_le_bytes(*value) as usize;
        rest = behind.get(end..).unwrap_or_default();
    }
    let is_empty = index.is_empty();
    for len in [stored.len() as u32, rows.len() as u32, count] {
        index.extend_from_slice(&len.to_le_bytes());
    }
    index.extend_from_slice(&blake3::hash(&stored).as_bytes()[..8]);
    if is_empty {
        index.clear();
    }
    let seal = [&3_u16.to_le_bytes()[..], &[0; 6], b"STORECKP"].concat();
    let mut bytes = [b"STORECKP", &seal[..8]].concat();
    if !is_empty {
        bytes.extend_from_slice(&stored);
    }
    let mut end = [compressed(head), compressed(&index)].concat();
    let lens = [
        compressed(head).len(),
        head.len(),
        compressed(&index).len(),
        index.len(),
    ];
    for len in lens
        .map(|len| len as u64)
        .into_iter()
        .chain([u64::from(count)])
    {
        end.extend_from_slice(&len.to_le_bytes());
    }
    let checksum = blake3::hash(&end);
    bytes.extend_from_slice(&end);
    bytes.extend_from_slice(checksum.as_bytes());
    bytes.extend_from_slice(&seal);
    bytes
}

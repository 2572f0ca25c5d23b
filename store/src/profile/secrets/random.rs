//! Whether a word looks random, as tokens and keys do, or written by a person. Pure.

/// Least entropy per character of a token, in bits; 34 random letters have 4 to 5.
const BITS_MIN: f64 = 3.0;
/// Words that people write in place of a token. Shorter ones are left out, since they occur by chance.
const WORDS: [&str; 14] = [
    "token",
    "example",
    "placeholder",
    "dummy",
    "changeme",
    "replace",
    "insert",
    "sample",
    "hugging",
    "secret",
    "redacted",
    "access",
    "xxxxx",
    "password",
];

/// Whether `word` is random enough that nobody would write it as an example.
pub(super) fn is_random(word: &[u8]) -> bool {
    bits_each(word) >= BITS_MIN && !is_sequence(word) && !holds_words(word) && !is_a_name(word)
}

/// Whether `word` is a name like `BertForSequenceClassificationModelX1`. In names, at least half of the neighbouring
/// letters are both lower-case, and vowels are frequent; of random words with 34 letters, one in 10,000 has both.
fn is_a_name(word: &[u8]) -> bool {
    let pairs = word.iter().zip(word.iter().skip(1));
    let small = pairs.filter(|(one, next)| one.is_ascii_lowercase() && next.is_ascii_lowercase());
    let letters = word
        .iter()
        .filter(|byte| byte.is_ascii_alphabetic())
        .count();
    let is_vowel = |byte: &&u8| b"aeiou".contains(&byte.to_ascii_lowercase());
    let vowels = word.iter().filter(is_vowel).count();
    let has_large = word.iter().any(u8::is_ascii_uppercase);
    has_large && 2 * small.count() >= word.len() && 10 * vowels >= 3 * letters
}

/// The entropy of the characters, in bits per character.
#[expect(clippy::cast_precision_loss, reason = "counts of characters in a word")]
fn bits_each(word: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in word {
        if let Some(count) = counts.get_mut(usize::from(*byte)) {
            *count += 1;
        }
    }
    let len = word.len() as f64;
    let bits = |count: u32| {
        let share = f64::from(count) / len;
        -share * share.log2()
    };
    counts
        .into_iter()
        .filter(|count| *count > 0)
        .map(bits)
        .sum()
}

/// Whether `word` is a sequence like `abcdefgh`, `12345678` or `aaaabbbb`: many characters equal or follow their
/// neighbour.
fn is_sequence(word: &[u8]) -> bool {
    let pairs = word.iter().zip(word.iter().skip(1));
    let beside = pairs
        .filter(|(one, next)| one.abs_diff(**next) <= 1)
        .count();
    3 * beside > word.len()
}

fn holds_words(word: &[u8]) -> bool {
    let small = word.to_ascii_lowercase();
    let small = String::from_utf8_lossy(&small);
    WORDS.iter().any(|word| small.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_a_third_of_a_sequence_follows_its_neighbour() {
        assert!(!is_sequence(b"abz"));
        assert!(is_sequence(b"abc"));
    }

    #[test]
    fn what_people_write_is_told_from_lots() {
        for word in [
            "94wBhPGp6KrrTH3KDchhKpRxZwd6dmHWLK",
            "qWzKxTfRbYvNmLpHsJdGcXrQkVtBnZwMfP",
            "4f9d02c1b8e67a35d0412fce98b3a76150e2d94c",
            "aEoUiqWzKxTeRbYvNmLpHiJdGcXrQkVtBa",
        ] {
            assert!(is_random(word.as_bytes()), "{word}");
        }
        for word in [
            "",
            "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
            "aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3",
            "abcdefghijklmnopqrstuvwxyz12345678",
            "1234567890123456789012345678901234",
            "PutYourOwnTokenFromTheSettingsHere",
            "IOSFODNN7EXAMPLE",
            "BertForSequenceClassificationModelX1",
            "T5ForConditionalGenerationEncoder12",
        ] {
            assert!(!is_random(word.as_bytes()), "{word}");
        }
    }
}

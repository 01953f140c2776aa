//! Texts in an order in which each finds much of itself shortly before it.
//!
//! gzip writes what it has seen in the last 32 KiB as where that stood. So the next text is always the one of which the largest part stands in
//! those before it. A part is counted in pieces: six bytes that follow each other, wherever they begin.

use std::collections::VecDeque;

/// Bytes of a piece. With 5 or 8 the page's module is within 0.2 % of what it is with these.
const PIECE: usize = 6;
/// How many bytes of texts are looked back at: fewer than gzip's 32 KiB, for what stood first in them is out of sight at the next text's end.
const BACK: usize = 24_000;
/// A piece in more texts than these says nothing of any.
const COMMON: usize = 400;
/// Added to a text's own pieces, so that one of a few bytes is not put anywhere because they stand there by chance.
const FEW: usize = 30;
/// Texts that are looked through at once.
const BLOCK: usize = 1024;

/// The places of the texts in that order. The longest is first, and after texts that share nothing with any that is left.
pub fn order(texts: &[&[u8]]) -> Vec<usize> {
    let pieces = Pieces::of(texts);
    let mut longest: Vec<usize> = (0..texts.len()).collect();
    longest.sort_by_key(|&text| std::cmp::Reverse(texts[text].len()));
    let mut longest = longest.into_iter();
    // How often each piece stands in the texts that are looked back at, and how many pieces of each text do.
    let (mut seen, mut shared) = (vec![0_u32; pieces.texts.len()], vec![0_u32; texts.len()]);
    // What a shared piece is of a text, the whole as 2^32; nothing once the text has its place.
    let mut part = pieces.part;
    let (mut order, mut back, mut bytes) = (Vec::with_capacity(texts.len()), VecDeque::new(), 0);
    let mut placed = vec![false; texts.len()];
    while let Some(next) = most(&shared, &part).or_else(|| longest.find(|&text| !placed[text])) {
        order.push(next);
        (placed[next], part[next]) = (true, 0);
        back.push_back(next);
        bytes += texts[next].len();
        for &piece in &pieces.of_text[next] {
            let piece = piece as usize;
            seen[piece] += 1;
            if seen[piece] == 1 {
                pieces.texts[piece].iter().for_each(|&text| shared[text as usize] += 1);
            }
        }
        while bytes > BACK && back.len() > 1 {
            let Some(gone) = back.pop_front() else { break };
            bytes -= texts[gone].len();
            for &piece in &pieces.of_text[gone] {
                let piece = piece as usize;
                seen[piece] -= 1;
                if seen[piece] == 0 {
                    pieces.texts[piece].iter().for_each(|&text| shared[text as usize] -= 1);
                }
            }
        }
    }
    order
}

/// The text of which the largest part is shared, the first of several; none if nothing is of any.
fn most(shared: &[u32], part: &[u32]) -> Option<usize> {
    let of = |(shared, part): (&u32, &u32)| shared * part;
    // The largest of many numbers is found faster than where it stands.
    let (mut largest, mut block) = (0, 0);
    for (place, (shared, part)) in shared.chunks(BLOCK).zip(part.chunks(BLOCK)).enumerate() {
        let here = shared.iter().zip(part).map(of).max().unwrap_or(0);
        if here > largest {
            (largest, block) = (here, place * BLOCK);
        }
    }
    let found = || shared[block..].iter().zip(&part[block..]).position(|both| of(both) == largest);
    if largest == 0 { None } else { found().map(|place| block + place) }
}

/// Pieces that stand in several texts, by numbers.
struct Pieces {
    of_text: Vec<Vec<u32>>,
    /// The texts that have each.
    texts: Vec<Vec<u32>>,
    /// 2^32 divided by all pieces of a text and [`FEW`]: times pieces of that text it is below 2^32.
    part: Vec<u32>,
}

impl Pieces {
    fn of(texts: &[&[u8]]) -> Pieces {
        let mut pieces =
            Pieces { of_text: vec![Vec::new(); texts.len()], texts: Vec::new(), part: Vec::new() };
        let mut all: Vec<([u8; PIECE], u32)> = Vec::new();
        for (text, bytes) in (0..).zip(texts) {
            let mut own: Vec<[u8; PIECE]> = bytes.array_windows().copied().collect();
            own.sort_unstable();
            own.dedup();
            pieces.part.push(u32::try_from((1_u64 << 32) / (own.len() + FEW) as u64).unwrap_or(u32::MAX));
            all.extend(own.into_iter().map(|piece| (piece, text)));
        }
        all.sort_unstable();
        let mut number = 0;
        for group in all.chunk_by(|one, other| one.0 == other.0) {
            if (2..=COMMON).contains(&group.len()) {
                for &(_, text) in group {
                    pieces.of_text[text as usize].push(number);
                }
                pieces.texts.push(group.iter().map(|&(_, text)| text).collect());
                number += 1;
            }
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_share_words_follow_each_other() {
        let texts = [
            "a plan of layers",
            "seconds of a step!",
            "its plan of layer 7",
            "no word",
            "all seconds of one step",
        ];
        let texts = texts.map(str::as_bytes);
        // The longest, then what shares with it, then the longest of what is left.
        assert_eq!(order(&texts), [4, 1, 2, 0, 3]);
    }

    #[test]
    fn every_text_has_one_place() {
        assert!(order(&[]).is_empty());
        assert_eq!(order(&[b"", b"", b"abcdefgh", b"abcdefgh"]), [2, 3, 0, 1]);
        let texts: Vec<String> = (0..2_000).map(|number| format!("{}", number * 7_919).repeat(9)).collect();
        let texts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        let mut places = order(&texts);
        places.sort_unstable();
        assert!(places.into_iter().eq(0..texts.len()));
    }

    #[test]
    fn what_is_far_behind_does_not_count() {
        let long: Vec<u8> = (0..30_000_u32).flat_map(|number| number.to_be_bytes()).collect();
        let near = b"what stands near is what counts here, and what stands far behind is not";
        let texts: [&[u8]; 4] = [&near[..40], &long, &near[..60], near];
        assert_eq!(order(&texts), [1, 3, 2, 0]);
    }
}

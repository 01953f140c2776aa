//! Megatron's layout strings, such as `Et*3|(tt|)*29m|L`.
//!
//! `|` ends a virtual stage. E is the embedding, t a transformer layer, m a multi-token-prediction module, L the loss.
//! Commas are ignored; `x*n` and `(xy)*n` repeat, parentheses first.

use super::Chunk;

/// Longest string that is read, and longest that it may unroll to.
const MAX_LETTERS: usize = 1 << 16;

/// The virtual stages of a layout string, in global order.
///
/// # Errors
/// A sentence that says what is wrong in the string.
pub fn parse_layout_string(text: &str) -> Result<Vec<Chunk>, String> {
    if text.len() > MAX_LETTERS {
        return Err(format!("it has {} characters, and at most {MAX_LETTERS} are read", text.len()));
    }
    let letters: Vec<char> =
        text.chars().filter(|letter| *letter != ',' && !letter.is_whitespace()).collect();
    let mut at = 0;
    let unrolled = unroll(&letters, &mut at, 0)?;
    chunks(&unrolled)
}

fn unroll(letters: &[char], at: &mut usize, depth: usize) -> Result<Vec<char>, String> {
    let mut found: Vec<char> = Vec::new();
    while let Some(&letter) = letters.get(*at) {
        *at += 1;
        let piece = match letter {
            'E' | 't' | 'm' | 'L' | '|' => vec![letter],
            '(' if depth < 8 => {
                let inner = unroll(letters, at, depth + 1)?;
                if letters.get(*at) != Some(&')') {
                    return Err("a parenthesis is not closed".to_owned());
                }
                *at += 1;
                inner
            }
            '(' => return Err("parentheses are nested more than 8 deep".to_owned()),
            ')' if depth > 0 => {
                *at -= 1;
                return Ok(found);
            }
            other => {
                return Err(format!("`{other}` has no meaning there; known are E t m L | ( ) * and numbers"));
            }
        };
        let times = repetitions(letters, at)?;
        if found.len().saturating_add(piece.len().saturating_mul(times)) > MAX_LETTERS {
            return Err(format!("it unrolls to more than {MAX_LETTERS} letters"));
        }
        // At once: nothing, repeated as often as a number can say, takes no time.
        found.extend(piece.repeat(times));
    }
    Ok(found)
}

/// The number after a `*`, or 1.
fn repetitions(letters: &[char], at: &mut usize) -> Result<usize, String> {
    if letters.get(*at) != Some(&'*') {
        return Ok(1);
    }
    *at += 1;
    let digits: String = letters[*at..].iter().take_while(|letter| letter.is_ascii_digit()).collect();
    *at += digits.len();
    digits.parse().map_err(|_| "a `*` needs a number after it".to_owned())
}

fn chunks(letters: &[char]) -> Result<Vec<Chunk>, String> {
    let (mut found, mut layer) = (Vec::new(), 0u64);
    for stage in letters.split(|letter| *letter == '|') {
        let count = |wanted: char| stage.iter().filter(|letter| **letter == wanted).count() as u64;
        let layers = layer..layer + count('t');
        layer = layers.end;
        found.push((
            Chunk { embedding: count('E') > 0, layers, mtp: count('m') > 0, loss: count('L') > 0 },
            count('m'),
        ));
    }
    let all = |wanted: char| letters.iter().filter(|letter| **letter == wanted).count();
    let order: Vec<char> = letters.iter().copied().filter(|letter| *letter != '|').collect();
    if all('E') != 1 || letters.first() != Some(&'E') {
        return Err("it must begin with the one embedding E, in the first stage".to_owned());
    }
    if all('L') != 1 || order.last() != Some(&'L') || !found.last().is_some_and(|(chunk, _)| chunk.loss) {
        return Err("it must end with the one loss L, in the last stage".to_owned());
    }
    let last_layer = order.iter().rposition(|letter| *letter == 't');
    let first_mtp = order.iter().position(|letter| *letter == 'm');
    if first_mtp.is_some() && first_mtp < last_layer {
        return Err("every m must come after every t".to_owned());
    }
    if found.iter().filter(|(chunk, _)| chunk.mtp).count() > 1 {
        return Err("all m must be in one virtual stage".to_owned());
    }
    Ok(found.into_iter().map(|(chunk, _)| chunk).collect())
}

/// Multi-token-prediction modules that a layout string names.
pub fn mtp_of_layout_string(text: &str) -> u64 {
    let letters: Vec<char> =
        text.chars().filter(|letter| *letter != ',' && !letter.is_whitespace()).collect();
    unroll(&letters, &mut 0, 0).map_or(0, |all| all.iter().filter(|letter| **letter == 'm').count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Layers of each virtual stage, with letters for what else it holds.
    fn check(text: &str, expected: &str) {
        let shown = match parse_layout_string(text) {
            Err(error) => error,
            Ok(chunks) => chunks
                .iter()
                .map(|chunk| {
                    let mark =
                        |here: bool, letter: &str| if here { letter.to_owned() } else { String::new() };
                    let layers = chunk.layers.end - chunk.layers.start;
                    format!(
                        "{}{layers}{}{}",
                        mark(chunk.embedding, "E"),
                        mark(chunk.mtp, "m"),
                        mark(chunk.loss, "L")
                    )
                })
                .collect::<Vec<_>>()
                .join(" "),
        };
        assert!(shown.starts_with(expected), "{text}: {shown}");
    }

    #[test]
    fn strings() {
        check("Et|t|tL", "E1 1 1L");
        check("E,t*3|(tt|)*2L", "E3 2 2 0L");
        check("Ett|(t|)*2,tm|L", "E2 1 1 1m 0L");
        check("E(t*2|)*2t|L", "E2 2 1 0L");
        check("tE|tL", "it must begin");
        check("|Et|tL", "it must begin");
        check("Et|t", "it must end");
        check("Et|tL|", "it must end");
        check("Emt|tL", "every m must come after");
        check("Et|m|mL", "all m must be in one");
        check("E(t|tL", "a parenthesis is not closed");
        check("Et)|tL", "`)` has no meaning");
        check("Et*|tL", "a `*` needs a number");
        check("Ex|tL", "`x` has no meaning");
        check("", "it must begin");
        check("E((((((((((t*99999)*99999)*99999)*99999)*99999)*99999))))", "parentheses are nested");
        check("E(t*60000)*60000|L", "it unrolls to more");
        check("E(t*0)*18446744073709551615t|L", "E1 0L");
    }

    #[test]
    fn deepseek_v3() {
        let chunks = parse_layout_string("Et*3|(tt|)*29m|L").unwrap();
        assert_eq!(chunks.len(), 32);
        assert_eq!(chunks.iter().map(|chunk| chunk.layers.end - chunk.layers.start).sum::<u64>(), 61);
        assert_eq!(mtp_of_layout_string("Et*3|(tt|)*29m|L"), 1);
        assert!(chunks[30].mtp && chunks[31].loss);
    }
}

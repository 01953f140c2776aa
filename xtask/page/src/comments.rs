//! JavaScript and style sheets without what only people read: a tenth of wasm-bindgen's, once compressed.

/// A script or a style sheet without lines that are comments, empty lines, and what lines begin with. Lines that hold some of a text of several lines
/// would change with it, so a script with such a text stays as it is.
pub fn without(script: &str) -> String {
    if has_long_text(script) {
        return script.to_owned();
    }
    let mut inside = false;
    let mut short = String::with_capacity(script.len());
    for line in script.lines().map(str::trim) {
        let end = line.find("*/").map(|end| end + "*/".len());
        // Code may follow a comment.
        let begins = line.starts_with("/*") && end.is_none_or(|end| end == line.len());
        let is_comment = inside || begins || line.starts_with("//") || line.is_empty();
        inside = (inside || begins) && end.is_none();
        if !is_comment {
            short.push_str(line);
            short.push('\n');
        }
    }
    short
}

/// Whether a text between backticks goes over the end of a line.
fn has_long_text(script: &str) -> bool {
    script.lines().any(|line| !line.matches('`').count().is_multiple_of(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_go_and_code_stays() {
        let script = "/**\n * @returns {number}\n */\nfunction one() {\n    // Why.\n    return `a ${b}`; // stays\n\n    /* here */\n}\n";
        assert_eq!(without(script), "function one() {\nreturn `a ${b}`; // stays\n}\n");
        assert_eq!(without("/* first */ two();\n/* a\n b */\nthree();\n"), "/* first */ two();\nthree();\n");
        let text = "const text = `\n    // part of it\n`;\n";
        assert_eq!(without(text), text);
    }
}

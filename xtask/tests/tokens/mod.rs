//! Reading Rust by its tokens, without what is compiled for tests alone.

use std::iter::Peekable;

use proc_macro2::{Delimiter, TokenTree, token_stream};

/// Tokens of a group, one after the other.
pub type Tokens = Peekable<token_stream::IntoIter>;

/// Passes over the attribute behind a `#`, and over the item behind it where that is for tests alone.
pub fn pass_attribute(tokens: &mut Tokens) {
    let attribute = tokens.next().map(|group| group.to_string().replace(' ', ""));
    if attribute.as_deref() == Some("[cfg(test)]") {
        skip_item(tokens);
    }
}

/// Passes over an item: to its end, or to the end of its body.
fn skip_item(tokens: &mut Tokens) {
    let mut is_use = false;
    for token in tokens {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == ';' => return,
            TokenTree::Ident(word) if word == "use" => is_use = true,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace && !is_use => return,
            _ => {}
        }
    }
}

pub fn is_mark(token: Option<&TokenTree>, mark: char) -> bool {
    matches!(token, Some(TokenTree::Punct(found)) if found.as_char() == mark)
}

//! What is typed into fields: attacks, what is hard to quote and right, and mixes of both.

use std::path::Path;

use proptest::prelude::*;

use super::stage::Stage;

/// Values that somebody types to run something else.
pub fn attacks(sentinel: &Path) -> Vec<String> {
    let touch = format!("touch {}", sentinel.display());
    let mut all = vec![
        format!("$({touch})"),
        format!("`{touch}`"),
        format!("x; {touch} #"),
        format!("x'; {touch}; '"),
        format!("x\"; {touch}; \""),
        format!("x\n{touch}\n"),
        format!("x\r\n#SBATCH --wrap={touch}\n"),
        format!("x\0{touch}"),
        format!("| {touch} &"),
        format!("-c{touch}"),
        format!("${{x:-$({touch})}}"),
        format!("x\\\n{touch}"),
        format!("#{touch}"),
        format!("a[$({touch})]"),
        format!("x:x:$({touch})"),
        format!("'\"`$(\u{202e}{touch})"),
        format!("x\nSHARDPLAN_PLAN_JSON\n{touch}\n"),
        format!("x\nEND_OF_PLAN\n{touch}\n"),
    ];
    all.extend(["~root", "*", "!x", "x %j", "-x", "", " "].map(str::to_owned));
    all.push("x".repeat(10_000));
    all
}

/// Parts of values, to be mixed.
fn parts(sentinel: &Path) -> Vec<String> {
    let mut all: Vec<String> = [
        "'",
        "\"",
        "`",
        "$",
        "(",
        ")",
        "{",
        "}",
        "\\",
        "\n",
        "\r",
        "\0",
        "\t",
        "\u{7f}",
        "#",
        "-",
        "--",
        " ",
        ";",
        "&&",
        "||",
        "|",
        "&",
        ">",
        "<<EOF",
        "*",
        "?",
        "[",
        "]",
        "{a,b}",
        "~",
        "!",
        "!!",
        "%j",
        ":",
        ",",
        "/",
        "=",
        "@",
        "+",
        ".",
        "x",
        "7",
        "HOME",
        "é",
        "ß",
        "\u{202e}",
        "\u{1f600}",
        "\u{feff}",
        "\u{2028}",
        "\u{300}",
        "#SBATCH --wrap=x",
        "SHARDPLAN_PLAN_JSON",
        "END_OF_PLAN",
        "\\n",
        "$'\\x41'",
    ]
    .map(str::to_owned)
    .to_vec();
    all.extend(attacks(sentinel).into_iter().filter(|attack| attack.len() < 200));
    all
}

/// Any value: an attack, a mix of parts, any characters, what a directive takes, something long.
pub fn value(stage: &Stage) -> BoxedStrategy<String> {
    let here = stage.text("");
    let parts = parts(&stage.sentinel());
    let mix =
        prop::collection::vec(prop::sample::select(parts.clone()), 1..12).prop_map(|parts| parts.concat());
    let any = prop::collection::vec(any::<char>(), 0..60).prop_map(String::from_iter);
    let plain: Vec<char> = ('a'..='z').chain('0'..='9').chain("._/@:+,=%-".chars()).collect();
    let plain = prop::collection::vec(prop::sample::select(plain), 1..40).prop_map(String::from_iter);
    let name = prop::collection::vec(prop::sample::select("ABCDEFGH_123".chars().collect::<Vec<_>>()), 4..12);
    let name = name.prop_map(|name| format!("ZQ{}", String::from_iter(name)));
    let long = prop::sample::select(parts).prop_map(|part| part.repeat(10_000 / part.len().max(1)));
    let text = prop_oneof![
        3 => prop::sample::select(attacks(&stage.sentinel())),
        4 => mix,
        2 => any,
        2 => plain,
        1 => name,
        1 => long,
    ];
    // A path stays on the stage, wherever it leads: scripts make folders, and remove their files.
    let on_stage = move |(text, absolute): (String, bool)| {
        let text = text.replace("..", ". ");
        if absolute || text.starts_with('/') {
            format!("{here}{}", text.trim_start_matches('/'))
        } else {
            text
        }
    };
    (text, prop::bool::weighted(0.3)).prop_map(on_stage).boxed()
}

/// What is hard to quote and right, for each kind of field; the first that is accepted stands for it.
pub fn awkward(stage: &Stage) -> Vec<String> {
    let hard = "it's $HOME `id` \"x\" \\ #end {a,b} * ! é";
    vec![
        hard.to_owned(),
        stage.text(hard),
        format!("{}:/it's $HOME `id` \"x\" \\ #end * ! é", stage.text("x y")),
        "a.b_c@d:e+f=g-h".to_owned(),
        "ZQ_NAME".to_owned(),
        stage.text("a.b_c@d+e=f-g"),
        "99:59:59".to_owned(),
        "USR2@99".to_owned(),
        "3,5-9:2%4".to_owned(),
        "1:a.b+c,1:a.b+c".to_owned(),
    ]
}

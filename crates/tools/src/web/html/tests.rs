//! Pages as they are in the web, and pages that are made to hurt.

use super::*;

fn at(page: &str, url: &str) -> String {
    markdown(page, &Url::parse(url).unwrap(), &|| false).unwrap().text
}

fn md(page: &str) -> String {
    at(page, "https://example.com/dir/page.html")
}

#[test]
fn an_article_keeps_what_people_read() {
    let page = include_str!("pages/article.html");
    insta::assert_snapshot!("article_markdown", md(page));
    let text = plain_text(page, &|| false).unwrap();
    assert_eq!(text.title, "Sorting & searching — Handbook");
    insta::assert_snapshot!("article_text", text.text);
    for dropped in ["pwned", "never", "Home", "Subscribe", "template", "color", "Skip to"] {
        assert!(!md(page).contains(dropped) && !text.text.contains(dropped), "{dropped}");
    }
}

#[test]
fn tables_stay_tables_where_they_hold_data() {
    let page = include_str!("pages/tables.html");
    insta::assert_snapshot!("tables_markdown", md(page));
    insta::assert_snapshot!("tables_text", plain_text(page, &|| false).unwrap().text);
}

#[test]
fn what_is_broken_is_read_as_far_as_it_goes() {
    let page = include_str!("pages/broken.html");
    insta::assert_snapshot!("broken_markdown", md(page));
}

#[test]
fn small_things() {
    for (page, expected) in [
        ("", ""),
        ("   \n ", ""),
        ("just text", "just text"),
        ("<title>T</title><p>x", "# T\n\nx"),
        ("<title>T</title><h1>H</h1><p>x", "# H\n\nx"),
        ("<p>a</p>\n\n<p>b</p>", "a\n\nb"),
        ("<pre>\n  a\n\n   b\n\n</pre>", "```\n  a\n\n   b\n```"),
        ("<pre>a<br>b</pre>", "```\na\nb\n```"),
        ("<pre>```\nx\n```</pre>", "````\n```\nx\n```\n````"),
        ("<code>a  b</code> <kbd>c</kbd>", "`a b` `c`"),
        ("<b><p>bold</p></b>", "bold"),
        ("<a href='/x'></a>x", "x"),
        ("<a href='//other.example/y'>y</a>", "[y](https://other.example/y)"),
        ("<a href='?q=1'>y</a>", "[y](https://example.com/dir/page.html?q=1)"),
        ("<a href='mailto:a@b.example'>m</a>", "[m](mailto:a@b.example)"),
        ("<form><h1>App</h1><p>all of the page</p><input></form>", "# App\n\nall of the page"),
        ("<math alttext='x^2'><mi>x</mi></math> is", "x^2 is"),
        ("<svg/>after", "after"),
        ("<table>a<tr>b<td>c<td>d</table>", "a\n\nb\n\nc\n\nd"),
        ("<nav>x<nav>y</nav></nav>after", "after"),
    ] {
        assert_eq!(md(page), expected, "{page}");
    }
    assert_eq!(at("<a href='b'>x</a>", "http://a.example/c/d"), "[x](http://a.example/c/b)");
}

#[test]
fn the_work_stops_when_it_is_told_to() {
    let url = Url::parse("https://example.com").unwrap();
    assert_eq!(markdown("<p>x", &url, &|| true), None);
    assert_eq!(plain_text("<p>x", &|| true), None);
    let pieces = std::cell::Cell::new(0);
    let page = "<p>x</p>".repeat(100_000);
    let stopped = || pieces.replace(pieces.get() + 1) == 5;
    assert_eq!(markdown(&page, &url, &stopped), None);
    assert_eq!(pieces.get(), 6);
}

/// What makes parsers and converters slow, large or recurse; each of some `size` bytes.
fn hostile(size: usize) -> Vec<(&'static str, String)> {
    let fill = |begin: &str, again: &str, end: &str| {
        let mut page = begin.to_owned();
        while page.len() < size {
            page.push_str(again);
        }
        page + end
    };
    let fonts: String = (0..400).map(|n| format!("<font color={n}>")).collect();
    let wide = format!("<tr><td>{}</td></tr>", "w".repeat(size / 50));
    vec![
        ("divs within divs", fill("", "<div>", "x")),
        ("divs that end", "<div>".repeat(100_000) + "x" + &"</div>".repeat(100_000)),
        ("inline within inline", fill("", "<b><i>", "x")),
        ("spans within spans", fill("", "<span>", "x")),
        ("lists within lists", fill("", "<ul><li>x", "")),
        ("quotes within quotes", fill("", "<blockquote>x<br>", "")),
        ("quotes of many lines", fill(&"<blockquote>".repeat(200), "<br>x", "")),
        ("tables within tables", fill("", "<table><tr><td>", "x")),
        ("formatting that is opened again", fill(&fonts, "<p>x", "")),
        ("neighbours", fill("", "<b>x</b>", "")),
        ("neighbours of other kinds", fill("", "<b>x</b><i>y</i>", "")),
        ("links within links", fill("", "<a href=x>y", "")),
        ("one wide cell", format!("<table>{wide}{}", fill("", "<tr><td>x<td>y</tr>", "</table>"))),
        (
            "ragged rows",
            format!("<table><tr>{}</tr>{}", "<td>c".repeat(size / 100), fill("", "<tr><td>x<td>y", "")),
        ),
        ("end tags", fill("<p>", "</p></div></b>", "x")),
        ("an attribute", fill("<p class='", "x ", "'>x")),
        (
            "many attributes",
            format!("<p {}>x", (0..size / 100).map(|n| format!("a{n}=1 ")).collect::<String>()),
        ),
        ("a comment", fill("<!--", "-", "x")),
        ("open brackets", fill("", "<", "")),
        ("entities", fill("", "&am", "")),
        ("breaks", fill("", "<br>", "x")),
        ("spaces", fill("x", " ", "x")),
        ("a script", fill("<script>", "</scrip", "x")),
        ("a title", fill("<title>", "t", "")),
        ("one word", fill("", "x", "")),
        ("stars", fill("", "*_[", "")),
        ("code within code", fill("", "<pre><code>", "x")),
        ("hidden within hidden", fill("", "<nav>", "</nav>x")),
        ("definitions", fill("<dl>", "<dt>x<dd>", "")),
        ("headings", fill("", "<h1>", "x")),
        ("forms", fill("", "<form>x", "<h1>y")),
        ("pictures", fill("", "<img src=x alt=y>", "")),
    ]
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn a_page_that_is_made_to_hurt_is_bounded() {
    let url = Url::parse("https://example.com").unwrap();
    // A stack as threads of the pool have it.
    let work = move || {
        let size = 100_000;
        for (name, page) in hostile(size) {
            let text = markdown(&page, &url, &|| false).unwrap().text;
            assert!(text.len() < 6 * size, "{name}: {} bytes", text.len());
            let text = plain_text(&page, &|| false).unwrap().text;
            assert!(text.len() < 2 * size, "{name}: {} bytes", text.len());
        }
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(work).unwrap().join().unwrap();
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn a_page_that_is_too_large_says_so() {
    let url = Url::parse("https://example.com").unwrap();
    let small = markdown(&"<p>some text</p>".repeat(10), &url, &|| false).unwrap();
    assert!(small.whole);
    let large = markdown(&"<p>some text</p>".repeat(300_000), &url, &|| false).unwrap();
    assert!(!large.whole);
    assert!(large.text.starts_with("some text\n\nsome text"));
}

#[test]
fn a_page_that_takes_too_long_is_cut() {
    let page = "<p>some text</p>".repeat(10_000);
    let tree = Tree::read_within(&page, std::time::Duration::ZERO, &|| false).unwrap();
    assert!(tree.cut);
}

#[test]
fn what_a_page_hides_is_not_shown_and_ends_where_it_should() {
    for (page, expected) in [
        ("<p hidden>x<p>y", "y"),
        ("<ul><li style='display : none'>x<li>y</ul>", "- y"),
        ("<div><nav>x</div>y", "y"),
        ("<table><tr><td hidden>x<td>a<td>b<tr><td>c<td>d</table>", "| a | b |\n| - | - |\n| c | d |"),
        ("<p hidden=until-found>y", "y"),
        ("<main aria-hidden=true>y</main>", "y"),
        ("<h1 hidden>x</h1><title>t</title><button>x</button>y", "# t\n\ny"),
    ] {
        assert_eq!(md(page), expected, "{page}");
        assert!(!plain_text(page, &|| false).unwrap().text.contains('x'), "{page}");
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(500))]

    /// Whatever tags there are in whatever order: no panic, and no word of the text is lost.
    #[test]
    fn tags_in_any_order_lose_no_text(
        tags in proptest::collection::vec(
            (proptest::sample::select(vec![
                "p", "div", "b", "i", "a href=x", "ul", "ol", "li", "table", "tr", "td", "th", "thead", "blockquote",
                "pre", "code", "h2", "br", "span", "dl", "dt", "dd", "section", "caption", "em", "hr",
            ]), proptest::prelude::any::<bool>()),
            0..60,
        ),
    ) {
        let mut page = String::new();
        for (number, (tag, end)) in tags.iter().enumerate() {
            let name = tag.split(' ').next().unwrap();
            page.push_str(&if *end { format!("</{name}>") } else { format!("<{tag}>") });
            page.push_str(&format!(" word{number}x "));
        }
        let (markdown, text) = (md(&page), plain_text(&page, &|| false).unwrap().text);
        for number in 0..tags.len() {
            let word = format!("word{number}x");
            proptest::prop_assert!(markdown.contains(&word), "{} is lost from {}:\n{}", word, page, markdown);
            proptest::prop_assert!(text.contains(&word), "{} is lost from {}:\n{}", word, page, text);
        }
    }
}

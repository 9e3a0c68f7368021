//! Prices of models in the configuration.

use insta::assert_snapshot;
use playhouse_protocol::ModelRef;

use super::*;

#[test]
fn prices_have_classes_steps_and_factors() {
    let facts = |model: &str, cost: &str| {
        let place = Place::new();
        let text = format!(
            "[providers.openai.models.\"{model}\"]\ncontext = 9000\noutput = 10\ncost = {{ {cost} }}\n"
        );
        let settings = place.write("operator/config.toml", text).load().unwrap();
        settings.catalogue.now().get(&ModelRef::new("openai", model)).unwrap().prices.clone()
    };
    let price = |text: &str| Some(text.parse().unwrap());
    let classes = "cache_write_30m = 1, cache_write_1h = 2, cache_write_12h = 3, reasoning = 4";
    let long =
        "long = [{ from = 200_000, input = 8, reasoning = 9 }, { above = 100, output = 7 }], input = 5";
    let prices = facts("mine", &format!("{classes}, {long}, multiples = {{ flex = 0.5, night = 0.25 }}"));
    let usual = prices.usual;
    assert_eq!((usual.cache_write_30m, usual.cache_write_1h), (price("1"), price("2")));
    assert_eq!((usual.cache_write_12h, usual.reasoning, usual.input), (price("3"), price("4"), price("5")));
    assert_eq!((prices.at(100).input, prices.at(101).output), (price("5"), price("7")));
    assert_eq!((prices.at(199_999).input, prices.at(200_000).input), (None, price("8")));
    assert_eq!(prices.at(200_000).reasoning, price("9"));
    let multiples: Vec<String> = prices.multiples.iter().map(|(name, by)| format!("{name} {by}")).collect();
    assert_eq!(multiples, ["flex 0.5", "night 0.25"]);
    // What is not named stays as it is known.
    let known = facts("gpt-6.1-sol", "cache_write_12h = 6");
    assert_eq!((known.usual.cache_write_12h, known.usual.input), (price("6"), price("2")));
    assert_eq!((known.at(300_000).input, known.multiples.contains_key("flex")), (price("4"), true));
    assert_eq!(facts("gpt-6.1-sol", "multiples = { flex = 0.4 }").multiples["flex"].to_string(), "0.4");
    assert_eq!(facts("gpt-6.1-sol", "long = []").long, []);
}

#[test]
fn steps_that_are_wrong_are_named() {
    let shown = each(
        &[
            "1",
            "[1]",
            "[{ input = 1 }]",
            "[{ above = 1, from = 3 }]",
            "[{ from = 0 }]",
            "[{ above = -1 }]",
            "[{ above = 1, input = \"2\" }]",
            "[{ above = 1, inptu = 2 }]",
            "[{ above = 1 }, { from = 2 }]",
        ],
        |long| operator(&format!("providers.openai.models.m.cost.long = {long}")),
    );
    assert_snapshot!(shown, @r#"
    operator/config.toml:1: `providers.openai.models.m.cost.long` is the whole number 1, expected a list of steps, as `[{ above = 200000, input = 4, output = 18 }]`
    operator/config.toml:1: `providers.openai.models.m.cost.long` holds the whole number 1, expected steps only, as `{ above = 200000, input = 4, output = 18 }`
    operator/config.toml:1: `providers.openai.models.m.cost.long` has a step without `above` or `from`
    operator/config.toml:1: `providers.openai.models.m.cost.long.from`: a step has `above` or `from`, not both
    operator/config.toml:1: `providers.openai.models.m.cost.long.from` is the whole number 0, expected a whole number from 1
    operator/config.toml:1: `providers.openai.models.m.cost.long.above` is the whole number -1, expected a whole number from 0
    operator/config.toml:1: `providers.openai.models.m.cost.long.input` is text, expected a number from 0
    operator/config.toml:1: unknown key `providers.openai.models.m.cost.long.inptu`; known here are above, cache_read, cache_write, cache_write_12h, cache_write_1h, cache_write_30m, from, input, output, reasoning; did you mean "input"?
    operator/config.toml:1: `providers.openai.models.m.cost.long` has two steps of the same threshold
    "#);
}

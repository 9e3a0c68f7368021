//! How a request says how much the model may think, and what it then must not say.

use playhouse_llm::{ChatFacts, DialectKind, Head, Reasoning, ReasoningWords, ToolChoice, Transcript};
use playhouse_protocol::capability::{
    BudgetRange, Effort, ReasoningField, ReasoningForm, RequestRules, Sampling, Thinking,
};
use playhouse_protocol::chat::{AssistantPart, ChatMessage, UserPart};
use serde_json::{Map, Value, json};

use crate::support::ALL;

fn request(dialect: DialectKind, head: &Head) -> Value {
    serde_json::from_slice(&Transcript::new(dialect, head).request(ToolChoice::Auto)).unwrap()
}

fn head(reasoning: Reasoning) -> Head {
    Head { model: "acme-1".into(), max_output: 32_000, reasoning: Some(reasoning), ..Head::default() }
}

const LOW: Reasoning = Reasoning::Effort(Effort::Low);
const HIGH: Reasoning = Reasoning::Effort(Effort::High);

#[test]
fn each_dialect_has_its_words_for_it() {
    let anthropic = |budget: u64| json!({"type": "enabled", "budget_tokens": budget});
    let budget = |budget: u64| json!({"thinkingBudget": budget, "includeThoughts": true});
    for (dialect, reasoning, path, expected) in [
        (DialectKind::Anthropic, LOW, "/thinking", anthropic(4096)),
        (DialectKind::Anthropic, Reasoning::Budget(9000), "/thinking", anthropic(9000)),
        (DialectKind::OpenaiChat, HIGH, "/reasoning_effort", json!("high")),
        (DialectKind::OpenaiChat, Reasoning::Budget(9000), "/reasoning_effort", json!("medium")),
        (DialectKind::OpenaiResponses, LOW, "/reasoning", json!({"effort": "low", "summary": "auto"})),
        (DialectKind::OpenaiResponses, Reasoning::Budget(90_000), "/reasoning/effort", json!("high")),
        (DialectKind::Gemini, LOW, "/generationConfig/thinkingConfig", budget(4096)),
        (DialectKind::Gemini, Reasoning::Budget(9000), "/generationConfig/thinkingConfig", budget(9000)),
    ] {
        let request = request(dialect, &head(reasoning));
        assert_eq!(request.pointer(path), Some(&expected), "{request}");
    }
    let third = Head { model: "gemini-3-pro".into(), ..head(LOW) };
    let level = json!({"thinkingLevel": "low", "includeThoughts": true});
    assert_eq!(request(DialectKind::Gemini, &third)["generationConfig"]["thinkingConfig"], level);
}

/// What a request says of reasoning.
fn told(dialect: DialectKind, head: &Head) -> Value {
    let request = request(dialect, head);
    let words =
        ["thinking", "output_config", "reasoning_effort", "reasoning", "enable_thinking", "thinking_budget"];
    let said = words.into_iter().filter_map(|word| Some((word.to_owned(), request.get(word)?.clone())));
    let gemini = request.pointer("/generationConfig/thinkingConfig").cloned();
    Value::Object(said.chain(gemini.map(|told| ("thinkingConfig".to_owned(), told))).collect())
}

/// Efforts alone; a budget alone; both; neither.
fn forms() -> [ReasoningForm; 4] {
    let efforts = vec![Effort::High, Effort::Max];
    let budget = Some(BudgetRange { min: 128, max: Some(9_000) });
    [
        ReasoningForm { efforts: efforts.clone(), budget: None },
        ReasoningForm { efforts: Vec::new(), budget },
        ReasoningForm { efforts, budget },
        ReasoningForm::default(),
    ]
}

#[test]
fn a_model_is_told_in_words_that_it_takes() {
    let adaptive = json!({"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "high"}});
    let enabled = |budget: u64| json!({"thinking": {"type": "enabled", "budget_tokens": budget}});
    let effort = json!({"reasoning_effort": "high"});
    let summary = json!({"reasoning": {"effort": "high", "summary": "auto"}});
    let level = json!({"thinkingConfig": {"thinkingLevel": "high", "includeThoughts": true}});
    let budget = |tokens: u64| json!({"thinkingConfig": {"thinkingBudget": tokens, "includeThoughts": true}});
    let nothing = json!({});
    let many = Reasoning::Budget(90_000);
    for (dialect, model, reasoning, expected) in [
        (DialectKind::Anthropic, "m", LOW, [&adaptive, &enabled(4_096), &enabled(4_096), &nothing]),
        (DialectKind::Anthropic, "m", many, [&adaptive, &enabled(9_000), &enabled(9_000), &nothing]),
        (DialectKind::OpenaiChat, "m", LOW, [&effort, &nothing, &effort, &nothing]),
        (DialectKind::OpenaiChat, "m", many, [&effort, &nothing, &effort, &nothing]),
        (DialectKind::OpenaiResponses, "m", LOW, [&summary, &nothing, &summary, &nothing]),
        (DialectKind::Gemini, "gemini-3-pro", LOW, [&level, &budget(4_096), &level, &nothing]),
        (DialectKind::Gemini, "gemini-3-pro", many, [&level, &budget(9_000), &budget(9_000), &nothing]),
        (DialectKind::Gemini, "gemini-2.5-pro", LOW, [&level, &budget(4_096), &budget(4_096), &nothing]),
    ] {
        for (form, expected) in forms().into_iter().zip(expected) {
            let head = Head { model: model.into(), reasoning_form: Some(form.clone()), ..head(reasoning) };
            assert_eq!(&told(dialect, &head), expected, "{dialect:?} {model} {reasoning:?} {form:?}");
        }
    }
}

#[test]
fn a_server_of_chat_completions_has_words_of_its_own() {
    let effort = json!({"reasoning": {"effort": "high"}});
    let tokens = |tokens: u64| json!({"reasoning": {"max_tokens": tokens}});
    let budget = |tokens: u64| json!({"enable_thinking": true, "thinking_budget": tokens});
    let nothing = json!({});
    for (reasoning_words, reasoning, expected) in [
        (ReasoningWords::Object, LOW, [&effort, &tokens(4_096), &effort, &nothing]),
        (ReasoningWords::Object, Reasoning::Budget(1), [&effort, &tokens(128), &tokens(128), &nothing]),
        (ReasoningWords::ThinkingBudget, LOW, [&nothing, &budget(4_096), &budget(4_096), &nothing]),
        (ReasoningWords::ThinkingBudget, HIGH, [&nothing, &budget(9_000), &budget(9_000), &nothing]),
    ] {
        let chat = ChatFacts { reasoning_words, ..ChatFacts::USUAL };
        for (form, expected) in forms().into_iter().zip(expected) {
            let head = Head { chat, reasoning_form: Some(form), ..head(reasoning) };
            assert_eq!(&told(DialectKind::OpenaiChat, &head), expected, "{reasoning:?}");
        }
        let unknown = told(DialectKind::OpenaiChat, &Head { chat, ..head(LOW) });
        let expected = if reasoning_words == ReasoningWords::Object {
            json!({"reasoning": {"effort": "low"}})
        } else {
            budget(4_096)
        };
        assert_eq!(unknown, expected);
    }
}

#[test]
fn a_model_that_reasons_is_asked_for_its_reasoning_encrypted_also_if_it_does_so_unasked() {
    let include = |head: &Head| request(DialectKind::OpenaiResponses, head)["include"].clone();
    let encrypted = json!(["reasoning.encrypted_content"]);
    assert_eq!(include(&Head { reasons: true, ..Head::default() }), encrypted);
    assert_eq!(include(&head(LOW)), encrypted);
    assert_eq!(include(&Head::default()), Value::Null, "others refuse to be asked");
}

#[test]
fn without_reasoning_there_is_no_word_of_it() {
    for dialect in ALL {
        let head = Head { model: "acme-1".into(), max_output: 100, ..Head::default() };
        let request = request(dialect, &head).to_string();
        for word in ["think", "reason", "include", "cache", "top", "temperature"] {
            assert!(!request.replace("include_usage", "").contains(word), "{word} in {request}");
        }
    }
}

#[test]
fn a_budget_leaves_room_for_the_answer_or_there_is_none() {
    for (max_output, asked, sent) in [
        (32_000, 100_000, Some(30_976)),
        (32_000, 10, Some(1_024)),
        (2_048, 4_096, Some(1_024)),
        (2_047, 4_096, None),
        (0, 4_096, None),
    ] {
        let head = Head { max_output, ..head(Reasoning::Budget(asked)) };
        for (dialect, path) in [
            (DialectKind::Anthropic, "/thinking/budget_tokens"),
            (DialectKind::Gemini, "/generationConfig/thinkingConfig/thinkingBudget"),
        ] {
            let request = request(dialect, &head);
            assert_eq!(request.pointer(path).and_then(Value::as_u64), sent, "{request}");
            assert!(sent.is_none_or(|budget| budget < max_output));
        }
    }
}

#[test]
fn sampling_is_sent_where_it_is_taken() {
    for (dialect, reasoning, expected) in [
        (DialectKind::Anthropic, None, json!({"temperature": 0.5})),
        (DialectKind::Anthropic, Some(LOW), json!({})),
        (DialectKind::OpenaiChat, None, json!({"temperature": 0.5, "top_p": 0.9})),
        (DialectKind::OpenaiResponses, None, json!({"temperature": 0.5, "top_p": 0.9})),
        (DialectKind::Gemini, None, json!({"temperature": 0.5, "topP": 0.9})),
    ] {
        let head = Head { temperature: Some(0.5), top_p: Some(0.9), reasoning, ..head(LOW) };
        let request = request(dialect, &head);
        let fields = if dialect == DialectKind::Gemini { &request["generationConfig"] } else { &request };
        let mut sent = fields.as_object().unwrap().clone();
        sent.retain(|name, _| ["temperature", "top_p", "topP"].contains(&name.as_str()));
        assert_eq!(Value::Object(sent), expected, "{dialect:?} {reasoning:?}");
    }
    let adaptive = Head { temperature: Some(0.5), reasoning_form: Some(forms()[0].clone()), ..head(LOW) };
    assert_eq!(request(DialectKind::Anthropic, &adaptive)["temperature"], Value::Null);
    let wide = Head { top_p: Some(0.98), ..head(LOW) };
    assert_eq!(request(DialectKind::Anthropic, &wide)["top_p"], 0.98, "thinking takes this much");
    let odd = Head { temperature: Some(f64::NAN), top_p: Some(f64::INFINITY), ..Head::default() };
    for dialect in ALL {
        assert!(!request(dialect, &odd).to_string().contains("null"));
    }
}

#[test]
fn the_cache_key_goes_to_those_who_know_it() {
    let head = Head { cache_key: Some("ses_1".into()), ..head(LOW) };
    for dialect in ALL {
        let expected = match dialect {
            DialectKind::OpenaiChat | DialectKind::OpenaiResponses => json!("ses_1"),
            DialectKind::Anthropic | DialectKind::Gemini => Value::Null,
        };
        assert_eq!(request(dialect, &head)["prompt_cache_key"], expected);
    }
}

/// What a request of Anthropic's dialect says of thinking: its kind, whether it is to be shown, and the effort.
fn told_to_claude(thinking: Thinking, wanted: Option<Effort>) -> (Value, Value, Value) {
    let head = Head {
        rules: RequestRules { thinking, display: true, ..RequestRules::default() },
        reasoning_form: Some(ReasoningForm { efforts: vec![Effort::Low, Effort::High], budget: None }),
        reasoning: wanted.map(Reasoning::Effort),
        ..head(LOW)
    };
    let request = request(DialectKind::Anthropic, &head);
    let thinking = &request["thinking"];
    (thinking["type"].clone(), thinking["display"].clone(), request["output_config"]["effort"].clone())
}

#[test]
fn a_claude_that_thinks_unasked_is_told_to_show_it() {
    let none = || Value::Null;
    let adaptive = |effort: Value| (json!("adaptive"), json!("summarized"), effort);
    for (thinking, wanted, told) in [
        (Thinking::OnRequest, None, (none(), none(), none())),
        (Thinking::OnRequest, Some(Effort::None), (none(), none(), none())),
        (Thinking::OnRequest, Some(Effort::Max), adaptive(json!("high"))),
        (Thinking::ByDefault, None, adaptive(none())),
        (Thinking::ByDefault, Some(Effort::None), (json!("disabled"), none(), none())),
        (Thinking::ByDefault, Some(Effort::Medium), adaptive(json!("high"))),
        (Thinking::Always, None, adaptive(none())),
        (Thinking::Always, Some(Effort::None), adaptive(json!("low"))),
    ] {
        assert_eq!(told_to_claude(thinking, wanted), told, "{thinking:?} {wanted:?}");
    }
}

#[test]
fn the_provider_is_asked_to_drop_reasoning_only_where_it_takes_that() {
    let rules = RequestRules { thinking: Thinking::Always, prefix_check: true, ..RequestRules::default() };
    let asked = |drop_stale_reasoning| {
        let head = Head { rules, drop_stale_reasoning, ..head(LOW) };
        request(DialectKind::Anthropic, &head)["thinking"]["block_binding"].clone()
    };
    assert_eq!(asked(false), Value::Null);
    assert_eq!(asked(true), json!({"prefix_mismatch_behavior": "drop_block"}));
}

#[test]
fn sampling_parameters_go_only_where_they_are_taken() {
    let told = |dialect, sampling, reasoning| {
        let rules = RequestRules { sampling, ..RequestRules::default() };
        let head = Head { rules, reasoning, reasoning_form: None, temperature: Some(0.5), ..head(LOW) };
        let request = request(dialect, &head);
        request.get("temperature").or(request.pointer("/generationConfig/temperature")).is_some()
    };
    for dialect in [DialectKind::OpenaiChat, DialectKind::OpenaiResponses] {
        let off = Some(Reasoning::Effort(Effort::None));
        assert!(told(dialect, Sampling::Always, None), "{dialect:?}");
        assert!(told(dialect, Sampling::WithoutReasoning, off), "{dialect:?}");
        assert!(!told(dialect, Sampling::WithoutReasoning, None), "{dialect:?}");
        assert!(!told(dialect, Sampling::Never, off), "{dialect:?}");
    }
    for dialect in [DialectKind::Anthropic, DialectKind::Gemini] {
        assert!(
            told(dialect, Sampling::Always, None) && !told(dialect, Sampling::Never, None),
            "{dialect:?}"
        );
    }
}

#[test]
fn reasoning_can_be_turned_off_where_a_model_can_do_without() {
    let off = Some(Reasoning::Effort(Effort::None));
    let with = |dialect, efforts: &[Effort], budget| {
        let form = ReasoningForm { efforts: efforts.to_vec(), budget };
        request(dialect, &Head { reasoning: off, reasoning_form: Some(form), ..head(LOW) })
    };
    let all = [Effort::None, Effort::Low];
    assert_eq!(with(DialectKind::OpenaiChat, &all, None)["reasoning_effort"], "none");
    assert_eq!(with(DialectKind::OpenaiResponses, &all, None)["reasoning"]["effort"], "none");
    assert_eq!(with(DialectKind::OpenaiResponses, &all[1..], None)["reasoning"]["effort"], "low");
    let budget = |min| {
        let range = BudgetRange { min, max: Some(24_576) };
        with(DialectKind::Gemini, &[], Some(range))["generationConfig"]["thinkingConfig"]["thinkingBudget"]
            .clone()
    };
    assert_eq!((budget(0), budget(128)), (json!(0), json!(128)));
}

#[test]
fn the_system_prompt_goes_first_in_the_input_where_instructions_are_not_cached() {
    let rules = RequestRules { system_in_input: true, ..RequestRules::default() };
    let head = Head { rules, system: "Be kind.".into(), ..head(LOW) };
    let mut transcript = Transcript::new(DialectKind::OpenaiResponses, &head);
    transcript.push(&ChatMessage::User { parts: vec![UserPart::Text { text: "Hi".into() }] }, &|_| None);
    let request: Value = serde_json::from_slice(&transcript.request(ToolChoice::Auto)).unwrap();
    let roles: Vec<&str> =
        request["input"].as_array().unwrap().iter().filter_map(|item| item["role"].as_str()).collect();
    assert_eq!((roles, &request["instructions"]), (vec!["developer", "user"], &Value::Null));
    assert_eq!(request["input"][0]["content"][0]["text"], "Be kind.");
}

#[test]
fn reasoning_that_does_not_hold_any_more_stays_behind_but_where_its_text_is_asked_for() {
    let parts = |stale| {
        let opaque =
            json!({"signature": "s", "encrypted_content": "e", "details": [{"type": "reasoning.text"}]});
        vec![
            AssistantPart::Reasoning { text: "hm".into(), opaque: Some(opaque), stale },
            AssistantPart::Text { text: "yes".into(), opaque: None },
        ]
    };
    let sent = |dialect, field, stale| {
        let chat = ChatFacts { reasoning_field: field, ..ChatFacts::USUAL };
        let mut transcript = Transcript::new(dialect, &Head { chat, ..head(LOW) });
        transcript.push(&ChatMessage::Assistant { parts: parts(stale) }, &|_| None);
        String::from_utf8(transcript.request(ToolChoice::Auto).to_vec()).unwrap()
    };
    for dialect in [DialectKind::Anthropic, DialectKind::OpenaiResponses] {
        assert!(sent(dialect, None, false).contains("hm"), "{dialect:?}");
        assert!(!sent(dialect, None, true).contains("hm"), "{dialect:?}");
    }
    let content = Some(ReasoningField::ReasoningContent);
    assert!(sent(DialectKind::OpenaiChat, content, true).contains(r#""reasoning_content":"hm""#));
}

/// The parts of an answer, as the next request to Gemini has them.
fn sent_back(model: &str, parts: Vec<AssistantPart>) -> Value {
    let mut transcript =
        Transcript::new(DialectKind::Gemini, &Head { model: model.into(), ..Head::default() });
    transcript.push(&ChatMessage::Assistant { parts }, &|_| None);
    let request: Value = serde_json::from_slice(&transcript.request(ToolChoice::Auto)).unwrap();
    request["contents"][0]["parts"].clone()
}

#[test]
fn signatures_go_back_on_the_part_that_they_came_with() {
    let text = |text: &str| AssistantPart::Text { text: text.into(), opaque: None };
    let signed = |on: &str| AssistantPart::Reasoning {
        text: String::new(),
        opaque: Some(json!({"thought_signature": on, "on": on})),
        stale: false,
    };
    let call = |id: &str| AssistantPart::Call {
        id: id.into(),
        name: "read".into(),
        input: Map::new(),
        opaque: None,
    };
    let called = |id: &str| json!({"functionCall": {"id": id, "name": "read", "args": {}}});
    let with = |mut part: Value, signature: &str| {
        part["thoughtSignature"] = signature.into();
        part
    };
    let stand_in = "skip_thought_signature_validator";
    let third = "gemini-3-pro";
    for (model, parts, expected) in [
        (
            third,
            vec![text("x"), signed("text"), call("a")],
            json!([with(json!({"text": "x"}), "text"), with(called("a"), stand_in)]),
        ),
        (
            third,
            vec![text("x"), signed("call"), call("a"), call("b")],
            json!([{"text": "x"}, with(called("a"), "call"), called("b")]),
        ),
        (third, vec![signed("text")], json!([with(json!({"text": ""}), "text")])),
        (third, vec![signed("call"), text("x")], json!([{"text": "x"}])),
        ("gemini-2.5-pro", vec![call("a")], json!([called("a")])),
        ("gemini-2.5-pro", vec![signed("call"), call("a")], json!([with(called("a"), "call")])),
    ] {
        assert_eq!(sent_back(model, parts), expected);
    }
}

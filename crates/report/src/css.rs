//! The style sheet of charts for programs that read neither CSS variables nor media queries.

use std::collections::BTreeMap;

use crate::svg::{CHART_CSS, LANES_CSS, MESSAGES_CSS};

type Variables<'a> = BTreeMap<&'a str, &'a str>;

/// [`CHART_CSS`] and the styles of lanes and messages in light colours, with every variable replaced by its value.
///
/// A class such as `.p3` sets variables. Each rule that reads them is written once for every such
/// class, at its place, so that rules of equal weight keep their order.
#[must_use]
pub fn css_without_variables() -> String {
    let rules: Vec<_> = [CHART_CSS, LANES_CSS, MESSAGES_CSS].into_iter().flat_map(rules).collect();
    let mut root = Variables::new();
    let mut classes: Vec<(&str, Variables<'_>)> = Vec::new();
    for (selector, body) in &rules {
        let variables: Variables<'_> = declarations(body).filter(|(name, _)| name.starts_with("--")).collect();
        match class_of(selector) {
            _ if variables.is_empty() => {}
            "" => root.extend(variables),
            class => classes.push((class, variables)),
        }
    }
    let reads_classes = |class: &str| {
        let known = |name: &str| root.contains_key(name);
        rules.iter().any(|(selector, body)| {
            selector.split(',').any(|one| class_of(one) == class) && variables_in(body).any(|name| !known(name))
        })
    };
    let mut out = String::new();
    for (selectors, body) in &rules {
        let plain: Vec<String> = declarations(body)
            .filter(|(name, _)| !name.starts_with("--"))
            .map(|(name, value)| format!("{name}:{value}"))
            .collect();
        let plain = plain.join(";");
        for selector in selectors.split(',').filter(|_| !plain.is_empty()) {
            let class = class_of(selector);
            if class.is_empty() || !reads_classes(class) {
                out.push_str(&format!("{selector}{{{}}}\n", resolve(&plain, &[&root])));
                continue;
            }
            for (setter, variables) in &classes {
                let narrowed = selector.replacen(class, &format!("{class}{setter}"), 1);
                out.push_str(&format!("{narrowed}{{{}}}\n", resolve(&plain, &[variables, &root])));
            }
        }
    }
    out
}

/// Selectors and bodies, without the rules that hold for some media only.
fn rules(css: &str) -> Vec<(&str, &str)> {
    let (mut found, mut rest) = (Vec::new(), css);
    while let Some((selector, behind)) = rest.split_once('{') {
        let end = if selector.trim().starts_with('@') { "}}" } else { "}" };
        let Some((body, next)) = behind.split_once(end) else { break };
        if end == "}" {
            found.push((selector.trim(), body));
        }
        rest = next;
    }
    found
}

fn declarations(body: &str) -> impl Iterator<Item = (&str, &str)> {
    body.split(';').filter_map(|one| one.split_once(':')).map(|(name, value)| (name.trim(), value.trim()))
}

/// The class behind `.takt-chart`, with its dot; empty where the rule names an element or the chart itself.
fn class_of(selector: &str) -> &str {
    let behind = selector.strip_prefix(".takt-chart").unwrap_or(selector).trim_start();
    let class = behind.split([' ', '>']).next().unwrap_or_default();
    if class.starts_with('.') { class } else { "" }
}

fn variables_in(text: &str) -> impl Iterator<Item = &str> {
    text.split("var(").skip(1).filter_map(|behind| behind.split(')').next())
}

/// `text` with the variables of the first scope that has them. A value may name another variable.
fn resolve(text: &str, scopes: &[&Variables<'_>]) -> String {
    let mut text = text.to_owned();
    loop {
        let Some(name) = variables_in(&text).next().map(str::to_owned) else { return text };
        let value = scopes.iter().find_map(|scope| scope.get(name.as_str())).unwrap_or(&"none");
        text = text.replace(&format!("var({name})"), value);
    }
}

#[cfg(test)]
mod tests {
    use super::css_without_variables;

    #[test]
    fn every_rule_keeps_its_colours_and_its_order() {
        let css = css_without_variables();
        assert!(!css.contains("var(") && !css.contains("--") && !css.contains('@'), "{css}");
        assert!(css.contains(".takt-chart .grid{stroke:#dfe3ea}"), "{css}");
        assert!(css.contains(".takt-chart .bar.p1 rect{fill:#e3a21a}"), "{css}");
        assert!(css.contains(".takt-chart .bar.late rect{fill:#c5281c}"), "{css}");
        assert!(css.contains(".takt-chart .legend>text{fill:#5d6878;font-size:11px}"), "{css}");
        // Of rules with equal weight the later one wins: the letters of a light bar are dark.
        let at = |rule: &str| css.find(rule).unwrap_or_else(|| panic!("no {rule} in {css}"));
        assert!(at(".takt-chart .bar.p0 text{fill:#fff;") < at(".takt-chart .open.p0 text{fill:#1d2530}"));
    }
}

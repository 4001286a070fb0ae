"""How Sphinx builds these pages: ``make docs``."""

import re
from importlib.metadata import metadata
from importlib.metadata import version as installed_version

project = "ndpp"
author = "the ndpp authors"
copyright = "the ndpp authors, BSD 3-Clause"
version = release = installed_version("ndpp")
REPOSITORY = next(
    url.split(", ")[1] for url in metadata("ndpp").get_all("Project-URL") if url.startswith("Repository, ")
)

extensions = [
    "myst_nb",  # Markdown, and notebooks, which run with every build
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # formulas show without a network
    "sphinx_copybutton",
    "sphinx_design",
    "numpydoc",
]
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 600
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]

myst_enable_extensions = ["amsmath", "attrs_block", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
myst_dmath_double_inline = True

autosummary_generate = True
autodoc_typehints = "none"  # parameter types are in the docstrings, in words
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
numpydoc_show_class_members = False  # the class template lists them, once
numpydoc_xref_param_type = False
add_module_names = False

# Names of other projects in docstrings. Their inventories are not fetched: a build needs no network.
OTHERS = "abc|collections|enum|joblib|numpy|np|pandas|polars|pyarrow|scipy|sklearn|string|torch|typing"
nitpick_ignore_regex = [
    (r"py:.*", rf"({OTHERS})\..*"),
    # Base classes that are not public, and properties that numpydoc lists among the attributes.
    (
        r"py:class",
        r"ndpp\.(\w+\.)*_\w+.*|ndpp\.laws\.(support\.ItemRows|law\.Law|union\.WeighedSets|shared\.SharedTies)",
    ),
    (
        r"py:class",
        r"ndpp\.(rows\.stores\.ChunkedRows|items\.base\.ReadOnly|baskets\.shown\.Shown|samplers\.exact\.routes\.Target)",
    ),
    (r"py:obj", r"(kernel|law)_"),
]

html_theme = "pydata_sphinx_theme"
html_title = f"ndpp {version}"
html_logo = html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_theme_options = {
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "header_links_before_dropdown": 7,
    "logo": {"text": f"ndpp {version}", "alt_text": "ndpp, front page"},
    "github_url": REPOSITORY,
    "navigation_depth": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {page: [] for page in ("index", "gallery", "search", "genindex")}
copybutton_exclude = ".linenos, .gp, .go"
html_show_sourcelink = False


def keep_bars(app, what, name, obj, options, lines):
    """Let docstrings write |S| for a size: to reStructuredText bars mean substitution, outside literals."""
    for i, line in enumerate(lines):
        lines[i] = re.sub(r"(``.*?``)|(?<!\\)\|", lambda found: found.group(1) or r"\|", line)


def setup(app):
    app.connect("autodoc-process-docstring", keep_bars, priority=900)

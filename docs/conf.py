"""How Sphinx builds these pages: ``make docs``."""

import os
import re
from importlib.metadata import metadata
from importlib.metadata import version as installed_version
from pathlib import Path

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

# Where the pages will be read, such as https://host/project/0.2.0, is known to the job that deploys them. It alone fetches the
# inventories of other projects, offers other versions and lists the pages for search engines; other builds need no network.
SITE, _, FOLDER = os.environ.get("NDPP_DOCS_URL", "").rstrip("/").rpartition("/")
if SITE:
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "scipy": ("https://docs.scipy.org/doc/scipy", None),
        "pandas": ("https://pandas.pydata.org/docs", None),
        "sklearn": ("https://scikit-learn.org/stable", None),
    }
    html_baseurl = f"{SITE}/{'dev' if FOLDER == 'dev' else 'stable'}/"  # old versions name the newest as the original
    html_theme_options |= {
        "switcher": {"json_url": f"{SITE}/versions.json", "version_match": FOLDER},
        "check_switcher": False,
        "navbar_end": ["version-switcher", "theme-switcher", "navbar-icon-links"],
    }


def keep_bars(app, what, name, obj, options, lines):
    """Let docstrings write |S| for a size: to reStructuredText bars mean substitution, outside literals."""
    for i, line in enumerate(lines):
        lines[i] = re.sub(r"(``.*?``)|(?<!\\)\|", lambda found: found.group(1) or r"\|", line)


def write_sitemap(app, exception):
    """List the pages for search engines."""
    if exception is None and app.builder.format == "html":
        pages = sorted(app.config.html_baseurl + app.builder.get_target_uri(name) for name in app.env.found_docs)
        urls = "".join(f"<url><loc>{page}</loc></url>\n" for page in pages)
        namespace = "http://www.sitemaps.org/schemas/sitemap/0.9"
        text = f'<?xml version="1.0" encoding="utf-8"?>\n<urlset xmlns="{namespace}">\n{urls}</urlset>\n'
        Path(app.outdir, "sitemap.xml").write_text(text, encoding="utf-8")


def setup(app):
    app.connect("autodoc-process-docstring", keep_bars, priority=900)
    if SITE:
        app.connect("build-finished", write_sitemap)

# frozen_string_literal: true

require "erb"

# A typical shop: about 450,000 objects that are live from boot on, and templates that render them into pages of about
# 2,500 objects each. It keeps the last pages' data for a while, so that old objects die, too.
class Shop
  PRODUCTS = 24_000
  PER_PAGE = 30
  # Pages whose data is kept.
  RECENT = 5_000
  KEPT_PER_PAGE = 20
  COLOURS = %w[red green blue black white grey].freeze

  TEMPLATE = <<~HTML
    <!doctype html>
    <title><%= ERB::Util.html_escape(title) %></title>
    <h1><%= ERB::Util.html_escape(title) %></h1>
    <ul class="recent"><% recent.each do |entry| %><li><%= entry[:name] %> <%= entry[:price] %></li><% end %></ul>
    <% products.each do |product| %>
    <section id="p<%= product[:id] %>">
      <h2><%= ERB::Util.html_escape(product[:name]) %></h2>
      <p><%= ERB::Util.html_escape(product[:text]) %></p>
      <p class="price"><%= money(product[:cents]) %>, <%= stock(product) %></p>
      <ul><% product[:attributes].keys.each do |name| %>
        <li class="<%= name.downcase %>"><%= name.capitalize %>: <%= ERB::Util.html_escape(product[:attributes][name]) %></li><% end %>
      </ul>
      <p><%= product[:tags].map { |tag| link(tag) }.join(", ") %></p>
      <% product[:reviews].each do |review| %>
      <blockquote><%= stars(review[:stars]) %> <%= ERB::Util.html_escape(review[:text]) %></blockquote><% end %>
    </section>
    <% end %>
  HTML

  # The methods of the template.
  class View
    ERB.new(TEMPLATE, trim_mode: "<>").def_method(self, "render(title, products, recent)")

    private

    def money(cents) = format("%d.%02d EUR", cents / 100, cents % 100)
    def stock(product) = product[:stock].zero? ? "sold out" : "#{product[:stock]} left"
    def link(tag) = %(<a href="/tags/#{ERB::Util.url_encode(tag)}">#{ERB::Util.html_escape(tag)}</a>)
    def stars(count) = ("*" * count).ljust(5, ".")
  end

  def initialize
    random = Random.new(1)
    @products = Array.new(PRODUCTS) { |number| product(number, random) }
    @recent = Array.new(RECENT)
    @page = 0
    @view = View.new
  end

  def call(_env)
    page = (@page += 1)
    first = (page * PER_PAGE) % (PRODUCTS - PER_PAGE)
    products = @products[first, PER_PAGE]
    entries = keep(page, products)
    body = @view.render("Page #{page}", products, entries)
    [200, { "content-type" => "text/html; charset=utf-8", "content-length" => body.bytesize.to_s,
            "x-worker" => Process.pid.to_s }, [body]]
  end

  private

  def keep(page, products)
    entries = products.first(KEPT_PER_PAGE / 2).map { |found| { name: found[:name].upcase, price: found[:cents].to_s } }
    @recent[page % RECENT] = entries
  end

  def product(number, random)
    { id: number, name: "Product #{number}", text: "The #{COLOURS.sample(random: random)} one & only, no. #{number}",
      cents: random.rand(100..99_999), stock: random.rand(4),
      attributes: { "colour #{number}" => COLOURS.sample(random: random).dup, "size" => "#{random.rand(20)} cm",
                    "weight" => "#{random.rand(900)} g", "made in" => "hall #{random.rand(90)}" },
      tags: Array.new(3) { |tag| "tag #{number % 97} #{tag}" },
      reviews: Array.new(2) { |review| { stars: random.rand(1..5), text: "review #{review} of #{number}" } } }
  end
end
